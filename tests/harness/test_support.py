"""Each reason why an engine cannot do a work, and that a work without one has none."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from backends.base import Accelerator, EngineInfo
from harness.estimate import Rates
from harness.machine.hardware import Machine
from harness.models.gguf_export import export
from harness.models.presets import PRESETS
from harness.models.source import resolve
from harness.models.synthesis import synthesise
from harness.models.tensors import SYNTHESISABLE
from harness.options import Options
from harness.plan import make_plan
from harness.support import clamped, other_types, unsupported
from harness.work import Work, combinations

_TINY = {
    "vocab_size": 512, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 1, "hidden_size": 64,
    "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
}  # fmt: skip
_ENGINE = EngineInfo("1.0", "CPU")


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which works there are does not depend on this host's speed, and measuring it takes time."""
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("support") / "tiny"
    synthesise(PRESETS["llama-3.2-1b"] | _TINY, directory)
    return directory


@pytest.fixture(scope="module")
def tiny_gguf(tiny: Path) -> Path:
    path = tiny.with_name("tiny.gguf")
    export(tiny, path, "bf16")
    return path


@pytest.fixture
def ministral(tiny: Path, tmp_path: Path) -> Path:
    """A family that transformers has and the export has not."""
    config = json.loads((tiny / "config.json").read_text())
    for file in tiny.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config |= {"architectures": ["Ministral3ForCausalLM"], "model_type": "ministral3"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def _work(backend: str, options: Options, engine: EngineInfo = _ENGINE) -> Work:
    (work,) = combinations(options, [resolve(model) for model in options.models], {backend: engine})
    return work


def _reason(backend: str, engine: EngineInfo = _ENGINE, **options: object) -> str | None:
    asked = Options(**options)
    return unsupported(_work(backend, asked, engine), asked)


@pytest.mark.parametrize("backend", ["torch", "mlx", "llama.cpp"])
@pytest.mark.parametrize("model", [name for name, config in PRESETS.items() if config["model_type"] in SYNTHESISABLE])
def test_every_engine_runs_every_preset_that_has_weights(backend: str, model: str) -> None:
    engine = EngineInfo("1.0", "CPU", model_types=tuple(SYNTHESISABLE))
    assert _reason(backend, engine, models=model, batch=(1, 8), device="cpu", n_threads=1) is None


def test_a_gguf_runs_in_llama_cpp_alone(tiny_gguf: Path) -> None:
    model = str(tiny_gguf)
    assert _reason("llama.cpp", models=model) is None
    assert "only llama.cpp reads .gguf" in _reason("torch", models=model)
    assert "only llama.cpp reads .gguf" in _reason("mlx", models=model)
    assert _reason("llama.cpp", models=model, weights="bf16") is None, "it is that already"
    why = "the file is bf16, and is run so or quantised (-w q4_k_m), but not made f16"
    assert _reason("llama.cpp", models=model, weights="f16") == why


def test_an_engine_must_have_code_for_the_family() -> None:
    old = EngineInfo("1.0", "CPU", model_types=("gpt2", "llama"))
    assert _reason("torch", old, models="llama-3.2-1b") is None
    assert "'qwen3_moe'" in _reason("torch", old, models="qwen3-30b-a3b")


@pytest.mark.parametrize(
    ("backend", "weights", "reason"),
    [
        ("llama.cpp", "q4_k_m", None),
        ("llama.cpp", "4bit", None),
        ("llama.cpp", "iq2_xs", "iq2_xs (-w) needs an importance matrix of the model's activations"),
        ("llama.cpp", "6bit", "it has no 6bit weights (-w); it has f32, f16, bf16, q4_k_m, q8_0"),
        ("mlx", "4bit", None),
        ("mlx", "4bit-g32", None),
        ("mlx", "q4_k_m", "it has no q4_k_m weights (-w); it has f32, f16, bf16, 8bit, 4bit; llama.cpp has q4_k_m"),
        ("llama.cpp", "int8", "it has no int8 weights (-w); it has f32, f16, bf16, q4_k_m, q8_0; torch has int8"),
        ("torch", "mxfp4", "it has no mxfp4 weights (-w); it has f32, f16, bf16; mlx and llama.cpp have mxfp4"),
        ("mlx", "nvfp4", "it has no nvfp4 weights (-w)"),
        ("torch", "4bit", "it has no int4 weights (-w); it has f32, f16, bf16; torchao would add int8 and int4"),
        ("torch", "iq2_xs", "it has no iq2_xs weights (-w); it has f32, f16, bf16"),
    ],
)
def test_an_engine_has_the_weight_formats_that_it_told_of(backend: str, weights: str, reason: str | None) -> None:
    told = {"llama.cpp": ("q4_k_m", "q8_0", "iq2_xs", "q1_0"), "mlx": ("8bit", "4bit", "4bit-g32"), "torch": ()}
    engine = EngineInfo("1.0", "CPU", quantised_formats=told[backend])
    found = _reason(backend, engine, models="llama-3.2-1b", weights=weights)
    assert found is None if reason is None else found.startswith(reason), found


def test_a_model_too_small_for_a_block_is_not_quantised(tmp_path: Path) -> None:
    # Its rows have 16 and 48 numbers; the smallest blocks of llama.cpp have 32, MLX's 4bit has 64.
    config = PRESETS["llama-3.2-1b"] | _TINY
    synthesise(config | {"hidden_size": 16, "intermediate_size": 48, "head_dim": 8}, tmp_path / "small")
    engine = EngineInfo("1.0", "CPU", quantised_formats=("q4_0", "4bit"))
    small = {"models": str(tmp_path / "small"), "n_prompt": 8, "n_gen": 8}
    end = "of its matrices, so -w {} would change nothing"
    assert _reason("llama.cpp", engine, weights="q4_0", **small) == "blocks of 32 numbers divide no row " + end.format(
        "q4_0"
    )
    assert _reason("mlx", engine, weights="4bit", **small) == "blocks of 64 numbers divide no row " + end.format("4bit")
    assert _reason("mlx", engine, weights="bf16", **small) is None


def test_a_kv_cache_is_not_of_the_weights_mixture() -> None:
    engine = EngineInfo("1.0", "CPU", quantised_formats=("q4_k_m", "6bit"))
    assert "no q4_k_m KV cache" in _reason("llama.cpp", engine, weights="q4_k_m", kv_k_format="q4_k_m")
    assert "no 6bit KV cache" in _reason("mlx", engine, weights="6bit", kv_k_format="6bit", kv_v_format="6bit")


def test_rows_that_blocks_do_not_divide_are_a_note() -> None:
    def note(model: str, backend: str, weights: str) -> str | None:
        engine = EngineInfo("1.0", "CPU", quantised_formats=("q4_k_m", "4bit"))
        return other_types(_work(backend, Options(models=model, weights=weights), engine))

    assert note("llama-3.2-1b", "llama.cpp", "q4_k_m") is None
    assert note("gpt2-mini", "mlx", "4bit") is None
    # 384 wide: 256 does not divide that, 32 does. Of 24 707 352 bytes 20 974 872 are q8_0 and 2 128 896 q5_0, as
    # llama.cpp's own file has them.
    assert note("gpt2-mini", "llama.cpp", "q4_k_m") == (
        "gpt2-mini q4_k_m on llama.cpp: its blocks do not divide the rows of some matrices, which are "
        "q8_0 (85% of all bytes), q5_0 (9% of all bytes)"
    )


def test_layers_cannot_be_on_a_gpu_that_is_forbidden() -> None:
    assert "--device cpu forbids it" in _reason("llama.cpp", device="cpu", n_gpu_layers=10)
    assert _reason("llama.cpp", device="cpu", n_gpu_layers=0) is None
    assert _reason("llama.cpp", device="gpu", n_gpu_layers=10) is None


@pytest.mark.parametrize("backend", ["torch", "mlx", "llama.cpp"])
def test_threads_are_limited_by_the_cores(backend: str) -> None:
    cores = psutil.cpu_count()
    assert _reason(backend, n_threads=cores) is None
    assert f"{cores} logical cores" in _reason(backend, n_threads=cores + 1)


@pytest.mark.parametrize("backend", ["torch", "mlx"])
def test_what_only_llama_cpp_has_is_refused_elsewhere(backend: str) -> None:
    assert "-ngl" in _reason(backend, n_gpu_layers=0)
    assert "-ngl" in _reason(backend, n_gpu_layers=12)
    assert "-ncmoe" in _reason(backend, n_cpu_moe=1)
    assert "-nkvo" in _reason(backend, kv_offload=False)
    assert "-sm" in _reason(backend, split_mode="none")
    assert "-ts" in _reason(backend, tensor_split=((3.0, 1.0),))
    assert "--rpc" in _reason(backend, rpc="127.0.0.1:50052")
    assert "-fa" in _reason(backend, flash_attn="on")
    assert "-ctk" in _reason(backend, kv_k_format="q8_0")
    assert "-ctv" in _reason(backend, kv_v_format="f16")
    assert _reason(backend, kv_k_format="bf16", kv_v_format="bf16") is None, "the weights' format is what it does"


def test_what_cannot_be_placed_is_refused() -> None:
    two = EngineInfo("1.0", "CUDA", (Accelerator("CUDA0", "a GPU"), Accelerator("CUDA1", "a GPU")))
    assert "has none" in _reason("llama.cpp", two, models="llama-3.2-1b", n_cpu_moe=4)
    assert _reason("llama.cpp", two, models="qwen3-30b-a3b", n_cpu_moe=4) is None
    assert _reason("llama.cpp", two, tensor_split=((3.0, 1.0),)) is None
    assert _reason("llama.cpp", two, tensor_split=((3.0, 1.0, 1.0),)) == "-ts 3/1/1 is for 3 devices, and there are 2"
    assert "--rpc adds devices" in _reason("llama.cpp", two, rpc="127.0.0.1:50052", device="cpu")


def test_more_layers_than_there_are_is_a_note() -> None:
    gpu = EngineInfo("1.0", "CUDA", (Accelerator("CUDA0", "a GPU"),))

    def note(engine: EngineInfo, **options: object) -> str | None:
        return clamped(_work("llama.cpp", Options(models="llama-3.2-1b", **options), engine))

    assert note(gpu, n_gpu_layers=17) is None  # 16 and the output layer
    assert note(gpu, n_gpu_layers=18) == (
        "-ngl 18 is more than the 17 layers of llama-3.2-1b, so all of them go to the GPU"
    )
    assert note(_ENGINE, n_gpu_layers=18) is None


def test_llama_cpp_takes_so_many_sequences_at_once() -> None:
    assert _reason("llama.cpp", batch=(1, 256)) is None
    assert "-B 257" in _reason("llama.cpp", batch=(1, 257))
    assert "-B 33" in _reason("llama.cpp", batch=33, n_batch=32)
    assert _reason("torch", batch=257) is None


def test_quantised_values_need_flash_attention() -> None:
    assert "flash attention" in _reason("llama.cpp", kv_v_format="q8_0", flash_attn="off")
    assert _reason("llama.cpp", kv_v_format="q8_0", flash_attn="on") is None
    assert _reason("llama.cpp", kv_v_format="f16", flash_attn="off") is None
    assert _reason("llama.cpp", kv_k_format="q8_0", flash_attn="off") is None


def test_what_the_export_does_not_know_is_left_to_the_other_engines(
    ministral: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def describe(names: Iterable[str], _: tuple[str, ...]) -> dict[str, EngineInfo]:
        return dict.fromkeys(names, EngineInfo("1.0", "CPU", model_types=None))

    monkeypatch.setattr("harness.engine_choice.describe", describe)
    monkeypatch.setattr("harness.plan.inspect", lambda: Machine("Linux", "a CPU", 1, 2**34, ()))
    case = {"models": str(ministral), "n_prompt": 8, "n_gen": 8}
    plan = make_plan(Options(**case))
    assert [work.backend for work in plan.works] == ["torch"]
    assert any("llama.cpp left out" in note and "'Ministral3ForCausalLM'" in note for note in plan.notes)

    assert "Ministral3ForCausalLM" in _reason("llama.cpp", **case)


def test_an_engine_has_the_kv_formats_that_it_has() -> None:
    assert _reason("llama.cpp", kv_k_format="q8_0", kv_v_format="q4_0") is None
    assert _reason("mlx", kv_k_format="8bit", kv_v_format="8bit") is None
    told = EngineInfo("1.0", "CPU", kv_formats=("fp8",))
    assert _reason("torch", told, kv_k_format="fp8", kv_v_format="fp8") is None
    assert "it has no hqq KV cache (-ctk); it has fp8 and" in _reason("torch", told, kv_k_format="hqq")
    assert "it has no 8bit KV cache (-ctk); it has f32, f16, bf16, q8_0" in _reason("llama.cpp", kv_k_format="8bit")
    assert "it has no q8_0 KV cache (-ctv); it has 8bit, 4bit and" in _reason("mlx", kv_v_format="q8_0")
    assert "it keeps keys and values alike, not 4bit and auto" in _reason("mlx", kv_k_format="4bit")
    assert "-fa off forbids it" in _reason("llama.cpp", kv_v_format="q8_0", flash_attn="off")


def test_a_kind_of_cache_is_one_that_the_engine_told_of() -> None:
    several = EngineInfo("1.0", "CPU", cache_kinds=("dynamic", "static"))
    assert _reason("torch", several, cache_kind="static") is None
    assert "'hybrid' (--cache-kind); it has dynamic, static" in _reason("torch", several, cache_kind="hybrid")
    assert "only torch has several" in _reason("mlx", cache_kind="static")


def test_a_cache_that_moves_over_cuda_is_for_cuda() -> None:
    gpu = Accelerator("cuda:0", "a GPU", 2**36)
    with_gpu = EngineInfo("1.0", "CUDA", (gpu,), cache_kinds=("offloaded",), cuda_cache_kinds=("offloaded",))
    assert _reason("torch", with_gpu, cache_kind="offloaded") is None
    assert "runs on CUDA only" in _reason("torch", with_gpu, cache_kind="offloaded", device="cpu")
    without = replace(with_gpu, accelerators=())
    assert "runs on CUDA only" in _reason("torch", without, cache_kind="offloaded")
