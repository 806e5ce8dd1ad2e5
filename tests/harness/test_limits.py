"""Contexts and memory that are too small, with the needs of Llama 3.1 8B worked out by hand."""

from types import SimpleNamespace

import psutil
import pytest

from backends.base import Accelerator, EngineInfo
from harness.errors import UserError
from harness.estimate import Rates
from harness.limits import check_context, memory_needed, memory_obstacle
from harness.models.source import resolve
from harness.options import Options
from harness.work import Work, combinations
from harness.workload import Case

MODEL = "llama-3.1-8b"
WEIGHTS = 8_030_261_248 * 2  # parameters as Meta publishes them, bf16
KV_TOKEN = 2 * 32 * 8 * 128 * 2  # keys and values · layers · KV heads · head size · bytes of f16
GB = 10**9
ANCHOR = (Case(0, 512, 128),)


@pytest.fixture(autouse=True)
def _known_rates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _work(backend: str = "torch", memories: tuple[int | None, ...] = (), **options: object) -> Work:
    gpus = tuple(Accelerator(f"gpu{index}", "NVIDIA A10", memory) for index, memory in enumerate(memories))
    (work,) = combinations(Options(**options), [resolve(MODEL)], {backend: EngineInfo("1.0", "build", gpus)})
    return work


def _set_free(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free, total=2 * free))


@pytest.mark.parametrize(("case", "fits"), [(Case(128, 96, 32), True), (Case(129, 96, 32), False)])
def test_a_case_must_fit_the_models_context(case: Case, fits: bool) -> None:
    mini = resolve("gpt2-mini")  # 256 positions
    if fits:
        check_context(mini, (case,))
    else:
        with pytest.raises(UserError, match=r"gpt2-mini holds 256 tokens, but depth 129 .* is 257; lower -d, -p or -n"):
            check_context(mini, (Case(0, 1, 1), case))


def test_memory_is_weights_and_kv_cache_and_a_workspace() -> None:
    assert round(WEIGHTS / GB, 2) == 16.06
    assert KV_TOKEN == 131_072
    workspace = memory_needed(_work(), (Case(8192, 512, 128),)) - WEIGHTS - (8192 + 512 + 128) * KV_TOKEN
    assert 0.1 * GB < workspace < GB


def test_memory_grows_with_depth_batch_and_format() -> None:
    shallow, deep = (Case(4096, 512, 128),), (Case(4096, 512, 128), Case(8192, 512, 128))
    assert memory_needed(_work(), deep) - memory_needed(_work(), shallow) == 4096 * KV_TOKEN
    four = (Case(4096, 512, 128, batch=4),)
    assert memory_needed(_work(), four) - memory_needed(_work(), shallow) == 3 * 4736 * KV_TOKEN
    f32 = memory_needed(_work(weights="f32"), shallow) - memory_needed(_work(), shallow)
    assert f32 == WEIGHTS + 4736 * KV_TOKEN
    assert memory_needed(_work(), (Case(0, 1, 1),)) > WEIGHTS + 2048 * KV_TOKEN, "the probe needs its context too"


def test_a_model_must_fit_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, 20 * GB)
    assert memory_obstacle(_work(), ANCHOR) is None
    _set_free(monkeypatch, 16 * GB)
    obstacle = memory_obstacle(_work(), ANCHOR)
    assert "llama-3.1-8b bf16 on torch needs about 16.8 GB, but 16.0 GB are free" in obstacle
    assert "-m" in obstacle


def test_a_model_must_fit_its_gpu_whatever_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work(memories=(24 * GB,)), ANCHOR) is None
    assert "12.0 GB are on the NVIDIA A10" in memory_obstacle(_work(memories=(12 * GB,)), ANCHOR)
    assert "12.0 GB are on the NVIDIA A10" in memory_obstacle(_work(memories=(12 * GB, 12 * GB)), ANCHOR)
    assert memory_obstacle(_work(memories=(24 * GB,), device="cpu"), ANCHOR) is not None


def test_llama_cpp_splits_a_model_over_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work("llama.cpp", (12 * GB, 12 * GB)), ANCHOR) is None
    assert "16.0 GB are on this machine's GPUs" in memory_obstacle(_work("llama.cpp", (8 * GB, 8 * GB)), ANCHOR)


def test_what_is_not_known_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_free(monkeypatch, GB)
    assert memory_obstacle(_work(memories=(None,)), ANCHOR) is None
    assert memory_obstacle(_work("llama.cpp", (8 * GB, None)), ANCHOR) is None
    assert memory_obstacle(_work("llama.cpp", (8 * GB,), n_gpu_layers=12), ANCHOR) is None
