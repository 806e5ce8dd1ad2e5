"""From a request to a plan, with the real simulated engine; what it needs, and what stops it."""

import re
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import harness
from backends.base import EngineInfo
from harness.estimate import Rates
from harness.machine.hardware import Gpu, Machine
from harness.plan import Seen
from harness.progress import Reporter
from results.schema import COLUMNS
from results.store import Store

GPT2_MINI_PARAMS = 24_721_152


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.inspect", lambda: Machine("Linux", "Intel(R) Xeon(R) 8488C", 2, 2**34, ()))
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


@pytest.fixture
def _engines_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking an engine starts a process; most of a plan does not depend on its answer."""

    def describe(names: Iterable[str], _: tuple[str, ...]) -> dict[str, EngineInfo]:
        formats = {"mlx": ("4bit",), "llama.cpp": ("q8_0",)}
        return {name: EngineInfo("1.0", "CPU", quantised_formats=formats.get(name, ())) for name in names}

    monkeypatch.setattr("harness.engine_choice.describe", describe)


def _plan(**options: object) -> harness.Plan:
    defaults = {"models": "gpt2-mini", "backends": "simulated", "n_prompt": 16, "n_gen": 8}
    return harness.make_plan(harness.Options(**(defaults | options)))


def test_a_plan_says_what_will_run() -> None:
    plan = _plan(n_depth=(0, 16), launches=2, repetitions=4, seed=5)
    assert [(work.backend, work.source.name) for work in plan.works] == [("simulated", "gpt2-mini")]
    assert plan.works[0].engine.build == "no engine", "the engine itself was asked"
    assert [str(case) for case in plan.cases] == ["p16 n8 d0", "p16 n8 d16"]
    assert (plan.launches, plan.repetitions, plan.seed) == (2, 4, 5)
    assert plan.obstacle is None
    assert plan.seconds > 2 * 5, "two starts of a worker"
    assert plan.timeout_s >= 300
    assert plan.memory_bytes > GPT2_MINI_PARAMS * 2
    assert any("measure no machine" in note for note in plan.notes)


@pytest.mark.usefixtures("_engines_are_told")
@pytest.mark.parametrize(
    ("machine", "label", "file"),
    [
        (None, "intel-xeon-8488c-2-cores", "intel-xeon-8488c-2-cores.csv"),
        ("spark", "spark", "spark.csv"),
        ("  Mac Studio, M4  ", "Mac Studio, M4", "Mac-Studio-M4.csv"),
        ("two\nlines\t\x1b[31m", "two lines  [31m", "two-lines-31m.csv"),
        ("../esc", "../esc", "esc.csv"),
        ("a/b", "a/b", "a-b.csv"),
        (r"C:\boot", r"C:\boot", "C-boot.csv"),
        ("..", "..", "machine.csv"),
        ("Übung 机器", "Übung 机器", "Übung-机器.csv"),
    ],
)
def test_a_label_names_the_rows_and_a_file_in_this_folder(machine: str | None, label: str, file: str) -> None:
    plan = _plan(machine=machine)
    assert plan.label == label
    assert plan.output == Path(file)


@pytest.mark.usefixtures("_engines_are_told")
def test_an_endless_label_makes_no_endless_file_name() -> None:
    assert len(_plan(machine="x" * 5000).output.name) < 200


@pytest.mark.usefixtures("_engines_are_told")
@pytest.mark.parametrize("machine", ["", "   ", "\n\t", "\x00\x1b"])
def test_an_empty_label_is_refused(machine: str) -> None:
    with pytest.raises(harness.UserError, match="--machine needs a label"):
        _plan(machine=machine)


@pytest.mark.usefixtures("_engines_are_told")
def test_a_given_output_is_kept(tmp_path: Path) -> None:
    assert _plan(machine="spark", output=tmp_path / "rows.csv").output == tmp_path / "rows.csv"


@pytest.mark.usefixtures("_engines_are_told")
@pytest.mark.parametrize(
    ("backends", "weights", "elements_written"),
    [
        ("torch", ("bf16",), 2),  # one checkpoint
        ("torch", ("bf16", "f32"), 2),  # torch converts while it loads
        (("torch", "mlx"), ("bf16",), 2),
        ("llama.cpp", ("bf16",), 2),
        (("torch", "llama.cpp"), ("bf16", "f32"), 2 + 2 + 4),
        ("mlx", ("4bit",), 13_928_280 / GPT2_MINI_PARAMS),  # MLX's own, made tensor by tensor
        (("mlx",), ("bf16", "4bit"), 2 + 13_928_280 / GPT2_MINI_PARAMS),
        ("llama.cpp", ("q8_0", "8bit"), 26_601_240 / GPT2_MINI_PARAMS),
        ("llama.cpp", ("bf16", "q8_0"), 2 + 26_601_240 / GPT2_MINI_PARAMS),
    ],
)
def test_a_file_that_works_share_is_counted_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backends: tuple[str, ...],
    weights: tuple[str, ...],
    elements_written: float,
) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path / "empty"))
    plan = _plan(backends=backends, weights=weights, flash_attn="auto")
    assert plan.disk_bytes == round(elements_written * GPT2_MINI_PARAMS)
    assert not (tmp_path / "empty").exists(), "planning writes nothing"


@pytest.mark.parametrize(("asked", "near"), [("q4_km", "q4_k_m"), ("bf17", "bf16"), ("5bits", "5bit"), ("Q8", "q8_0")])
def test_an_unknown_weight_format_is_refused_with_near_ones(asked: str, near: str) -> None:
    with pytest.raises(harness.UserError, match=rf"^-w {asked}: unknown format '{asked}'; there is .*\b{near}\b"):
        _plan(weights=asked)


@pytest.mark.usefixtures("_engines_are_told")
def test_an_engine_without_the_format_is_left_out_unless_it_was_named() -> None:
    plan = _plan(backends=None, weights="q8_0")
    assert [work.backend for work in plan.works] == ["llama.cpp"]
    why = "it has no q8_0 weights (-w); it has f32, f16, bf16; llama.cpp has q8_0"
    assert f"torch left out for gpt2-mini in q8_0: {why}" in plan.notes
    with pytest.raises(harness.UserError, match=r"^torch, gpt2-mini: it has no q8_0 weights .*; llama\.cpp has q8_0"):
        _plan(backends="torch", weights="q8_0")


@pytest.mark.usefixtures("_engines_are_told")
def test_a_format_of_some_named_engines_runs_on_these() -> None:
    plan = _plan(backends=("llama.cpp", "mlx", "torch"), weights=("bf16", "q8_0", "4bit"), n_threads=(1, 2))
    found = {(work.backend, work.settings.weights) for work in plan.works}
    assert found == {
        ("llama.cpp", "bf16"), ("llama.cpp", "q8_0"), ("mlx", "bf16"), ("mlx", "4bit"), ("torch", "bf16")
    }  # fmt: skip
    notes = [note.partition(":")[0] for note in plan.notes if "left out" in note]
    assert notes == [
        "llama.cpp left out for gpt2-mini in q4_k_m",
        "mlx left out for gpt2-mini in q8_0",
        "torch left out for gpt2-mini in q8_0",
        "torch left out for gpt2-mini in int4",
    ]


@pytest.mark.usefixtures("_engines_are_told")
@pytest.mark.parametrize("backends", [("mlx", "torch"), None])
def test_a_format_of_no_engine_that_runs_is_an_error(backends: tuple[str, ...] | None) -> None:
    with pytest.raises(harness.UserError, match=r"^\S+, gpt2-mini: it has no q6_k weights .*; llama\.cpp has q6_k"):
        _plan(backends=backends, weights=("bf16", "q6_k"))


@pytest.mark.usefixtures("_engines_are_told")
def test_an_error_has_the_reason_of_every_engine_that_was_asked() -> None:
    why = "torch, gpt2-mini: it has no iq2_xs .*; llama.cpp, gpt2-mini: iq2_xs .* needs an importance matrix"
    with pytest.raises(harness.UserError, match=f"^{why}"):
        _plan(backends=None, weights="iq2_xs")


@pytest.mark.usefixtures("_engines_are_told")
def test_a_full_disk_is_told_by_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENROOF_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**7))
    with pytest.raises(harness.UserError, match=r"need 49\.4 MB of disk"):
        _plan()


@pytest.mark.usefixtures("_engines_are_told")
def test_too_little_memory_can_be_planned_and_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=10**8, total=2**34))
    output = tmp_path / "out.csv"
    plan = _plan(output=output)
    assert re.match(r"gpt2-mini bf16 on simulated needs about 5\d\d MB, but 100 MB are free", plan.obstacle)
    with pytest.raises(harness.UserError, match="100 MB are free"):
        harness.run(plan, Reporter())
    assert not output.exists()


@pytest.mark.usefixtures("_engines_are_told")
def test_lists_of_settings_become_works() -> None:
    plan = _plan(models=("gpt2-mini", "gpt2"), weights=("bf16", "f32"), n_threads=1)
    assert [(work.source.name, work.settings.weights) for work in plan.works] == [
        ("gpt2-mini", "bf16"), ("gpt2-mini", "f32"), ("gpt2", "bf16"), ("gpt2", "f32"),
    ]  # fmt: skip


@pytest.mark.usefixtures("_engines_are_told")
def test_what_an_engine_does_not_have_makes_no_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_count", lambda **_: 8)
    plan = _plan(backends=("torch", "llama.cpp"), n_threads=(1, 2), n_batch=(512, 2048), n_ubatch=(256, 512))
    by_engine = [work.backend for work in plan.works]
    assert by_engine == ["torch"] * 2 + ["llama.cpp"] * 8
    assert len(set(plan.works)) == 10


@pytest.mark.usefixtures("_engines_are_told")
def test_a_context_that_is_too_small_is_refused_before_any_engine_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.engine_choice.describe", lambda _: pytest.fail("an engine was asked"))
    with pytest.raises(harness.UserError, match="gpt2-mini holds 256 tokens"):
        _plan(n_prompt=256)


@pytest.mark.usefixtures("_engines_are_told")
def test_a_reason_against_a_named_engine_is_an_error_and_else_a_note() -> None:
    with pytest.raises(harness.UserError, match=r"torch, gpt2-mini: .*-fa is for llama\.cpp"):
        _plan(backends=("torch", "llama.cpp"), flash_attn="on")
    plan = _plan(backends=None, flash_attn="on")
    assert [work.backend for work in plan.works] == ["llama.cpp"]
    assert len([note for note in plan.notes if "torch left out for gpt2-mini" in note]) == 1


def test_what_was_seen_before_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.plan.inspect", lambda: pytest.fail("the machine was looked at"))
    monkeypatch.setattr("harness.engine_choice.describe", lambda *_: pytest.fail("an engine was asked"))
    machine = Machine("Linux", "a CPU", 2, 2**34, ())
    kinds = EngineInfo("1.0", "CPU", cache_kinds=("static", "offloaded"), cuda_cache_kinds=("offloaded",))
    options = harness.Options(models="gpt2-mini", backends="torch", n_prompt=16, cache_kind=("static", "offloaded"))
    plan = harness.make_plan(options, Seen(machine, {"torch": kinds}))
    assert [work.settings.cache_kind for work in plan.works] == ["static"]
    assert ["offloaded cache" in note for note in plan.notes] == [True], "it is left out, though the engine was named"


@pytest.mark.usefixtures("_engines_are_told")
def test_a_gpu_that_no_engine_can_use_stops_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu("nvidia", "NVIDIA GeForce RTX 5090", 2**35)
    monkeypatch.setattr("harness.plan.inspect", lambda: Machine("Linux", "a CPU", 2, 2**34, (gpu,)))
    with pytest.raises(harness.UserError, match="has a NVIDIA GeForce RTX 5090"):
        _plan(backends=None)
    plan = _plan(backends="torch", device="cpu")
    assert plan.works[0].accelerator is None
    assert plan.label == "rtx-5090"


@pytest.mark.usefixtures("_engines_are_told")
@pytest.mark.parametrize(
    ("rows", "n_gen"),
    [
        ([], 128),
        ([("here", 32)], 32),
        ([("here", 32), ("there", 128)], 32),
        ([("there", 32)], 128),
        ([("here", 32), ("here", 128)], 128),
    ],
)
def test_a_default_run_is_resumed_with_the_generation_it_began_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, int]], n_gen: int
) -> None:
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(5e11, 5e13))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**11))
    output = tmp_path / "out.csv"
    some = {"text": "x", "int": 1, "float": 1.0, "json": {}}
    required = {column.name: some[column.kind] for column in COLUMNS if column.required}
    store = Store(output)
    for number, (machine, generated) in enumerate(rows):
        store.append(required | {"machine": machine, "n_gen": generated, "row_id": f"{number:012x}", "status": "ok"})
    asked = {"backends": "torch", "machine": "here", "output": output}
    assert harness.make_plan(harness.Options(**asked, resume=True)).cases[0].n_gen == n_gen
    assert harness.make_plan(harness.Options(**asked)).cases[0].n_gen == 128, "only a resumed run looks back"


@pytest.mark.usefixtures("_engines_are_told")
def test_a_file_in_need_of_mending_is_planned_on(tmp_path: Path) -> None:
    """The store mends it, or refuses it, when the run begins."""
    output = tmp_path / "out.csv"
    output.write_text("not,our,columns\n1,2,3\n")
    plan = _plan(output=output, resume=True)
    with pytest.raises(harness.TokenroofError, match=r"out\.csv"):
        harness.run(plan, Reporter())
    assert output.read_text() == "not,our,columns\n1,2,3\n"


def test_one_value_stands_for_a_list_of_one() -> None:
    options = harness.Options(models="gpt2", n_prompt=3, n_gen=0, n_depth=4, batch=2, backends="torch", weights="f32")
    listed = harness.Options(
        models=("gpt2",), n_prompt=(3,), n_gen=(0,), n_depth=(4,), batch=(2,), backends=("torch",), weights=("f32",)
    )
    assert options == listed
    assert options.repetitions is None
    assert options.device == "auto"
    assert options.seed == 1
