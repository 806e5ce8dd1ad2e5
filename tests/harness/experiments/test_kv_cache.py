"""Which cases the KV-cache experiments run."""

import json
from pathlib import Path

import pytest

from backends.base import EngineInfo
from harness.errors import UserError
from harness.experiments.kv_cache import EXPERIMENTS
from harness.experiments.kv_cache.asked import Asked, CannotAnswerError
from harness.experiments.kv_cache.heads import groupings, variants
from harness.experiments.kv_cache.window import variants as with_window
from harness.models.presets import PRESETS
from harness.models.source import resolve
from harness.options import Options
from harness.roofline.architecture import Attention
from harness.roofline.traffic import kv_bytes_per_token, kv_cache_bytes
from harness.workload import Case

ENGINES = {
    "torch": EngineInfo("1", "CPU", cache_kinds=("dynamic", "static"), kv_formats=("fp8",)),
    "llama.cpp": EngineInfo("1", "CPU"),
}


def _runs(name: str, model: str = "gpt2-mini", prefixes: tuple[int, ...] | None = None) -> list[Options]:
    asked = Asked(Options(models=model, backends=tuple(ENGINES)), ENGINES, 16, 224, prefixes)
    return EXPERIMENTS[name](asked)


def test_on_and_off_double_the_text_in_both_ways() -> None:
    (run,) = _runs("on-off")
    lengths = (7, 14, 28, 56, 112, 224)
    assert run.cases == tuple(Case(0, 16, n, 1, way) for way in ("on", "off") for n in lengths)


def test_reuse_keeps_more_and_more_of_one_prompt() -> None:
    (run,) = _runs("reuse")
    assert run.cases[0] == Case(0, 239, 1)
    assert run.cases[1:] == tuple(Case(n, 239 - n, 1, 1, "prefix") for n in (0, 59, 119, 179, 238))
    (run,) = _runs("reuse", prefixes=(8, 9))
    assert [case.n_depth for case in run.cases[1:]] == [8, 9]
    with pytest.raises(UserError, match="--prefix 239: the prompt has 239 tokens"):
        _runs("reuse", prefixes=(8, 239))


@pytest.mark.parametrize("name", ["formats", "memory"])
def test_formats_are_those_of_each_engine(name: str) -> None:
    runs = _runs(name)
    assert [(run.backends, run.kv_k_format, run.kv_v_format) for run in runs] == [
        ((engine,), (form,), (form,))
        for engine, forms in {"torch": ("auto", "fp8"), "llama.cpp": ("auto", "q8_0", "q4_0")}.items()
        for form in forms
    ]
    assert all(case.context_tokens <= 240 for run in runs for case in run.cases)


def test_kinds_are_what_the_engine_told_of() -> None:
    (run,) = _runs("kinds")
    assert run.backends == ("torch",)
    assert run.cache_kind == ("auto", "dynamic", "static")


def test_an_engine_that_cannot_answer_is_left_out_and_told_of() -> None:
    asked = Asked(Options(models="gpt2-mini"), ENGINES, 16, 224)
    assert [run.backends for run in EXPERIMENTS["kinds"](asked)] == [("torch",)]
    (note,) = asked.notes
    assert note.startswith("--experiment kinds: llama.cpp left out: ")
    with pytest.raises(CannotAnswerError, match=r"llama\.cpp left out"):
        EXPERIMENTS["kinds"](Asked(Options(models="gpt2-mini"), {"llama.cpp": EngineInfo("1", "CPU")}, 16, 224))


def test_a_window_ends_between_the_depths_and_each_layer_of_a_mistral_has_it() -> None:
    run, _ = _runs("window")
    assert [case.n_depth for case in run.cases or ()] == [26, 105, 210]
    assert run.cache_kind == ("auto", "dynamic"), "this project's own keeps the whole context"
    windowed, whole = (resolve(model).architecture for model in run.models)
    assert [Path(model).name for model in run.models] == ["gpt2-mini-window52", "gpt2-mini-window256"]
    token = 2 * 3 * 384 * 2
    assert [kv_cache_bytes(windowed, n, 2) for n in (26, 52, 210)] == [26 * token, 52 * token, 52 * token]
    assert kv_cache_bytes(whole, 210, 2) == 210 * token


def test_llama_cpp_gets_a_gemma_with_windows_and_no_more_room_beside_them_than_it_must(tmp_path: Path) -> None:
    _, run = _runs("window")
    assert (run.backends, run.cache_kind, run.n_ubatch) == (("llama.cpp",), ("auto",), (52,))
    windowed, whole = (resolve(model).architecture for model in run.models)
    assert {windowed.model_type, whole.model_type} == {"gemma3_text"}
    assert [windowed.window, whole.window] == [52, 256]
    # Five layers of six have one; gpt2-mini has three layers.
    small = {"n_layer": 12, "n_embd": 64, "n_head": 2, "vocab_size": 400, "bos_token_id": 0, "eos_token_id": 0}
    (tmp_path / "deep.json").write_text(json.dumps(PRESETS["gpt2"] | small))
    twelve, _ = with_window(str(tmp_path / "deep.json"), 100, "llama.cpp")
    windows = [layer.mixer.window for layer in resolve(twelve).architecture.layers]
    assert windows == [100, 100, 100, 100, 100, None] * 2


def test_mlx_windows_all_layers_but_one() -> None:
    shape = resolve(with_window("gpt2-mini", 52, "mlx")[0]).architecture
    assert [layer.mixer.window for layer in shape.layers if isinstance(layer.mixer, Attention)] == [52, 52, None]


def test_batches_double_as_far_as_the_memory_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    token_bytes = 2 * 3 * 384 * 2
    for room, batches in ((10**12, [1, 2, 4, 8, 16, 32]), (4 * 240 * token_bytes * 5, [1, 2, 4]), (0, [1])):
        monkeypatch.setattr("psutil.virtual_memory", lambda room=room: type("Free", (), {"available": room}))
        (run,) = _runs("batch")
        assert [case.batch for case in run.cases] == batches


@pytest.mark.parametrize(
    ("n_heads", "kv_heads"), [(32, [32, 8, 1]), (6, [6, 2, 1]), (12, [12, 3, 1]), (4, [4, 2, 1]), (2, [2, 1]), (1, [1])]
)
def test_heads_are_grouped_by_a_number_that_divides_them(n_heads: int, kv_heads: list[int]) -> None:
    assert groupings(n_heads) == kv_heads


def test_models_of_other_heads_have_the_same_shape() -> None:
    paths = variants("gpt2-mini")
    assert [Path(path).name for path in paths] == ["gpt2-mini-kv6", "gpt2-mini-kv2", "gpt2-mini-kv1"]
    shapes = [resolve(path).architecture for path in paths]
    assert [kv_bytes_per_token(shape, 2) for shape in shapes] == [2 * 3 * heads * 64 * 2 for heads in (6, 2, 1)]
    assert {(shape.d_model, shape.n_layers, shape.vocab_size, shape.max_context) for shape in shapes} == {
        (384, 3, 50257, 256)
    }
    assert variants("gpt2-mini") == paths, "they are written once"


@pytest.mark.parametrize("text", [(1, 2), (200, 8), (8, 200)])
def test_every_text_has_cases_that_can_be_run(text: tuple[int, int]) -> None:
    asked = Asked(Options(models="gpt2-mini", backends=tuple(ENGINES)), ENGINES, *text)
    for name in set(EXPERIMENTS) - {"heads", "window"}:
        for case in (case for run in EXPERIMENTS[name](asked) for case in run.cases or ()):
            assert min(case.n_depth, case.n_prompt, case.n_gen) >= 0, name
            assert case.n_outputs > 0, name
            assert case.context_tokens <= sum(text), name


def test_every_experiments_text_fits_the_context() -> None:
    for name in set(EXPERIMENTS) - {"heads", "window"}:
        assert all(case.context_tokens <= 240 for run in _runs(name) for case in run.cases), name
