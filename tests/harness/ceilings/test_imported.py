"""What the harness adds to imported rows."""

import json
from pathlib import Path

import pytest

from harness.ceilings.imported import complete, complete_published
from harness.errors import UserError
from harness.machine.catalog import find
from results.importers import import_file, import_text
from results.importers.published import published_rows

DATA = Path(__file__).parents[2] / "results" / "importers" / "data"


def row(label: str, size: int, params: int, *, depth: int = 0, gpu: str = "NVIDIA GeForce RTX 4080", **more: int):
    test = {
        "model_type": label, "model_size": size, "model_n_params": params, "avg_ts": 10, "n_prompt": 0, "n_gen": 128,
        "n_depth": depth, "backends": "CUDA", "gpu_info": gpu, "n_gpu_layers": -1, "type_k": "f16", "type_v": "f16",
        "model_filename": "m.gguf", **more,
    }  # fmt: skip
    return complete(import_text(json.dumps(test), "x").rows, "x")[0]


def test_streamed_bytes_and_ceiling_with_a_pencil():
    """Llama 3.1 8B F16: all but the looked-up embedding of 128256 x 4096; 131072 B of KV cache a token."""
    params = 8_030_261_248
    found = row("llama 8B F16", 2 * params, params, depth=1000)
    streamed = 2 * (params - 128_256 * 4096)
    assert found["streamed_bytes_per_token"] == pytest.approx(streamed, rel=1e-6)
    assert found["kv_bytes_per_token"] == 131_072
    mean_context = 1000 + 127 / 2  # a step reads what lies before its own token and that token, or only the former
    assert found["kv_read_bytes"] == pytest.approx(131_072 * mean_context, rel=0.002)
    step_s = (streamed + 131_072 * mean_context) / 716.8e9  # 256 bit x 22.4 GT/s
    assert found["decode_ceiling_spec_tok_s"] == pytest.approx(1 / step_s, rel=1e-3)
    assert found["derived"]["streamed_bytes_per_token"].startswith("estimated: the shape of llama-3.1-8b")
    assert "mbu" not in found


def test_a_mixture_of_experts_streams_its_active_ones():
    """Qwen3 30B A3B has 3.3 B active parameters of 30.5 B, at some 4.6 bits each."""
    found = row("qwen3moe 30B.A3B Q4_K - Medium", round(17.28 * 2**30), 30_532_122_624)
    assert found["architecture"] == "qwen3_moe"
    assert 1.5e9 < found["streamed_bytes_per_token"] < 2.5e9


def test_a_table_rounds_and_is_recognised_all_the_same():
    rows = complete(import_file(DATA / "llama_bench_depth.md").rows, "x", machine="box", device="DGX Spark")
    assert rows[1]["derived"]["streamed_bytes_per_token"].startswith("estimated: the shape of qwen3-30b-a3b")
    # keys and values of 48 layers, 4 heads of 128, at 34 bytes for 32 elements
    assert rows[1]["kv_bytes_per_token"] == 2 * 48 * 4 * 128 * 34 // 32
    assert rows[1]["bandwidth_spec_gbs"] == pytest.approx(273.056)


def test_no_ceiling_where_several_memories_hold_the_model():
    params = 8_030_261_248
    for more in ({"n_gpu_layers": 20}, {"n_cpu_moe": 4}):
        found = row("llama 8B F16", 2 * params, params, **more)
        assert "streamed_bytes_per_token" in found
        assert "decode_ceiling_spec_tok_s" not in found
    two = row("llama 8B F16", 2 * params, params, gpu="NVIDIA GeForce RTX 4080, NVIDIA GeForce RTX 4080")
    assert "decode_ceiling_spec_tok_s" not in two


@pytest.mark.parametrize(
    ("label", "size", "params"),
    [
        ("llama 8B F16", 16_060_522_496, 9_000_000_000),  # no preset of that size
        ("zzz 8B F16", 16_060_522_496, 8_030_261_248),  # of another architecture
        ("llama 8B F16", 5_000_000_000, 8_030_261_248),  # other weights than it says
        ("llama 8B unheard of", 16_060_522_496, 8_030_261_248),
    ],
)
def test_what_is_not_known_stays_as_it_was_told(label: str, size: int, params: int):
    found = row(label, size, params)
    assert "streamed_bytes_per_token" not in found
    assert found["decode_tok_s"] == 10


def test_names_that_nobody_tells_are_asked_for():
    batched = import_file(DATA / "llama_batched_bench.txt").rows
    with pytest.raises(UserError, match=r"a\.txt: llama-batched-bench does not name the machine here; add --machine"):
        complete(batched, "a.txt")
    with pytest.raises(UserError, match=r"a\.txt: llama-batched-bench does not name the model; add --model"):
        complete(batched, "a.txt", device="RTX 5090")
    named = complete(batched, "a.txt", device="RTX 5090", model="m")[0]
    assert (named["machine"], named["device_name"], named["model"]) == ("rtx-5090", "RTX 5090", "m")


def test_published_rows_meet_the_catalog():
    rows = complete_published(published_rows())
    assert all("decode_ceiling_spec_tok_s" in one for one in rows)
    one = rows[0]
    device = find(one["device_name"])
    step_bytes = one["streamed_bytes_per_token"] + one["kv_read_bytes"]
    assert one["decode_ceiling_spec_tok_s"] == pytest.approx(device.bandwidth_bytes_s / step_bytes)
    # The vendors round their bandwidths; nothing is faster than its memory by more than that.
    assert max(one["decode_tok_s"] / one["decode_ceiling_spec_tok_s"] for one in rows) < 1.025
