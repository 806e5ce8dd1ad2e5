"""`tokenroof predict` as a user types it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.machine.catalog import load_catalog

Command = Callable[..., Any]
Predicted = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def predicted(command: Command) -> Predicted:
    """What programs get."""

    def predict(*arguments: str) -> list[dict[str, Any]]:
        result = command("predict", *arguments, "--json")
        assert result.returncode == 0, result.stderr
        found: list[dict[str, Any]] = json.loads(result.stdout)
        return found

    return predict


def test_one_object_a_device_with_the_promised_keys(predicted: Predicted) -> None:
    found = predicted("-m", "llama-3.1-8b", "-w", "q4_k_m", "-d", "32768", "--on", "RTX 5090,DGX Spark,M5 Ultra,Rubin")
    ids = ["rtx-5090", "dgx-spark-gb10", "apple-m5-ultra", "rubin-vr200"]
    assert [each["device_id"] for each in found] == ids
    assert predicted("-m", "llama-3.1-8b", "-w", "q4_k_m", "-d", "32768", "--on", ",".join(ids)) == found
    for each in found:
        assert each["fits"] is True
        assert each["kv_bytes_per_token"] == 131_072
        # llama.cpp's own file of this model: 4.58 GiB.
        assert each["weight_bytes"] == pytest.approx(4.58 * 2**30, rel=0.002)
        assert 0 < each["streamed_bytes_per_token"] < each["weight_bytes"]
        assert each["max_context"] == 131_072
        for key in ("decode_tok_s", "ttft_s", "request_s"):
            assert each[key]["low"] <= each[key]["mid"] <= each[key]["high"]
        assert each["decode_tok_s"]["high"] <= each["decode_ceiling_tok_s"]
        assert each["bound"] == "memory"
    by_id = {each["device_id"]: each for each in found}
    assert by_id["rtx-5090"]["gpu_layers"] == 33
    assert by_id["dgx-spark-gb10"]["gpu_layers"] is None
    # 273 GB/s over the weights and a KV cache of 33 280 tokens at the first of 127 steps.
    step = by_id["dgx-spark-gb10"]["streamed_bytes_per_token"] + 131_072 * (33_280 + 63)
    assert by_id["dgx-spark-gb10"]["decode_ceiling_tok_s"] == pytest.approx(273.056e9 / step, rel=1e-4)


def test_the_whole_catalog(predicted: Predicted) -> None:
    found = predicted("-m", "llama-3.1-70b", "-w", "q4_k_m", "--on", "all")
    assert [each["device_id"] for each in found] == [device.id for device in load_catalog()]
    unknown = [each["device_id"] for each in found if each["bandwidth_gbs"] is None]
    assert unknown == ["gh200-144gb"]
    for each in found:
        runs = each["decode_tok_s"] is not None
        assert runs or each["notes"], each["device_id"]
        assert (each["decode_ceiling_tok_s"] is not None) == runs


def test_what_does_not_fit_a_card_goes_to_the_host(predicted: Predicted) -> None:
    (slow,) = predicted("-m", "llama-3.1-70b", "-w", "q4_k_m", "--on", "RTX 5090", "--host", "ddr4-3200-2ch")
    (fast,) = predicted("-m", "llama-3.1-70b", "-w", "q4_k_m", "--on", "RTX 5090", "--host", "ddr5-8000-2ch")
    assert slow["fits"] is fast["fits"] is False
    assert 0 < slow["gpu_layers"] == fast["gpu_layers"] < 81
    assert slow["bound"] == "host memory"
    assert slow["decode_tok_s"]["mid"] < fast["decode_tok_s"]["mid"]
    (mac,) = predicted("-m", "llama-3.1-70b", "-w", "bf16", "--on", "apple-m1")
    assert (mac["fits"], mac["decode_tok_s"], mac["gpu_layers"]) == (False, None, None)


def test_the_best_split_and_what_a_gb_more_would_bring(predicted: Predicted, command: Command) -> None:
    arguments = ["-m", "qwen3-30b-a3b", "-w", "bf16", "--on", "RTX 5090", "--host", "ddr5-5600-2ch"]
    (found,) = predicted(*arguments)
    best, more, experts = (found["offload"][name] for name in ("best", "one_gb_more", "experts_on_host"))
    assert (best["n_gpu_layers"], best["n_cpu_moe"]) == (found["gpu_layers"], 0)
    assert best["decode_tok_s"] == found["decode_tok_s"]
    # Two channels of 64 bits at 5600 million transfers a second.
    assert best["host_s_per_token"] == pytest.approx(best["host_bytes_per_token"] / 89.6e9)
    assert more["decode_tok_s"]["mid"] > best["decode_tok_s"]["mid"]
    # A layer's experts: 128 of three matrices of 768 x 2048 in bf16, 1.208 GB; 48 layers. 61.1 GB do not fit in 32.
    assert experts["n_gpu_layers"] == 49
    assert (61.06 - 1.208 * experts["n_cpu_moe"]) * 1e9 < 32 * 2**30 < 64e9
    assert experts["decode_tok_s"]["mid"] > best["decode_tok_s"]["mid"]
    text = command("predict", *arguments).stdout.replace("\n", " ")
    assert f"fastest at -ngl {best['n_gpu_layers']}, " in text
    assert f"1 GB more on the GPU: -ngl {more['n_gpu_layers']}, " in text
    assert f"-ngl 49 --n-cpu-moe {experts['n_cpu_moe']}, " in text


def test_nothing_is_said_of_splits_where_all_of_it_fits(predicted: Predicted, command: Command) -> None:
    arguments = ["-m", "llama-3.1-8b", "-w", "q4_k_m", "--on", "RTX 5090"]
    assert predicted(*arguments)[0]["offload"] is None
    assert "-ngl" not in command("predict", *arguments).stdout


def test_a_device_of_numbers_alone(predicted: Predicted) -> None:
    (found,) = predicted(
        "-m", "llama-2-7b", "-w", "f16", "--bandwidth", "1000", "--capacity", "24", "-p", "0", "-n", "2"
    )
    assert found["device"] == "1000 GB/s, 24 GB"
    streamed = (6_738_415_616 - 32_000 * 4096) * 2 + 2 * 65 * 4096 * (4 - 2) / 2  # GGUF's f16 keeps norms in f32
    assert found["streamed_bytes_per_token"] == pytest.approx(streamed, rel=1e-4)
    assert found["decode_ceiling_tok_s"] == pytest.approx(1e12 / found["streamed_bytes_per_token"], rel=1e-4)
    assert found["ttft_s"] is None
    # 24 GB less 13.5 GB of weights and a workspace leave some 20 000 tokens of half a MiB; the model is made for 4096.
    assert found["max_context"] == 4096


def test_a_config_alone_will_do(tmp_path: Path, predicted: Predicted) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "intermediate_size": 14336,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (by_file,) = predicted("-m", str(tmp_path / "config.json"), "-w", "q8_0", "--on", "rtx-4090")
    assert by_file == predicted("-m", str(tmp_path), "-w", "q8_0", "--on", "rtx-4090")[0]
    assert by_file == predicted("-m", "llama-3.1-8b", "-w", "q8_0", "--on", "rtx-4090")[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "llama-3.1-8b"], "for which device?"),
        (["-m", "llama-3.1-8b", "--on", "RTX 5099"], 'no device "RTX 5099"'),
        (["-m", "llama-3.1-8b", "--on", "RTX 3080"], "memory size"),
        (["-m", "llama-3.1-8b", "--on", "M4 Max"], "GPU cores"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "-w", "q4_k_x"], "q4_k_"),
        (["-m", "llama-3.1-8c", "--on", "rtx-5090"], "llama-3.1-8b"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "-d", "-1"], "-d -1"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "-d", "999999999999"], "-d 999999999999"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "-p", "0", "-n", "0"], "nothing to predict"),
        (["-m", "llama-3.1-8b", "--bandwidth", "-5"], "--bandwidth -5"),
        (["-m", "llama-3.1-8b", "--bandwidth", "nan"], "--bandwidth nan"),
        (["-m", "llama-3.1-8b", "--bandwidth", "0.0005"], "--bandwidth 0.0005: give a number from 0.001"),
        (["-m", "llama-3.1-8b", "--bandwidth", "1e7"], "--bandwidth 1e+07"),
        (["-m", "llama-3.1-8b", "--on", "RTX 2080"], 'no device "RTX 2080"; near it: GeForce RTX 2080 Ti'),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "--host", "rtx-4090"], "no system memory"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "--host", "M5 Ultra"], "Apple M5 Ultra is no system memory"),
        (["-m", "llama-3.1-8b", "--bandwidth", "900", "--capacity", "0"], "--capacity 0"),
        (["-m", "llama-3.1-8b", "--bandwidth", "900", "--on", "rtx-5090"], "leave out"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "--host", "gh200-144gb"], "--host gh200-144gb"),
        (["-m", "llama-3.1-8b", "--on", "rtx-5090", "-ctk", "q4_2"], "q4_"),
        (["-m", "llama-3.1-8b", "--on", ""], "no device"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, command: Command) -> None:
    result = command("predict", *arguments)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
