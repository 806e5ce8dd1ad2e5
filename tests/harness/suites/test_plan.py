"""What a suite does on machines of hand-made sizes: every case is planned once, or skipped with its reason."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.base import Accelerator, EngineInfo
from harness.estimate import Rates
from harness.experiments.fit import with_layers
from harness.machine.hardware import Machine
from harness.models.source import resolve
from harness.options import Options
from harness.plan import Seen
from harness.rows import not_tried
from harness.suites.catalog import SUITES, Entry, Suite
from harness.suites.places import places
from harness.suites.plan import SuitePlan, plan_suite
from harness.work import combinations
from harness.workload import Case
from results.store import Store

RTX_5090 = 32607 * 2**20
DEPTHS = (0, 8192, 32768)


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    _has(monkeypatch, ram=64e9, disk=2e12)
    monkeypatch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))


def _has(monkeypatch: pytest.MonkeyPatch, *, ram: float = 64e9, disk: float = 2e12) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=int(ram), available=int(ram)))
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=int(disk)))


def _seen(*, vram: int | None = None) -> Seen:
    gpus = () if vram is None else (Accelerator("cuda:0", "NVIDIA GeForce RTX 5090", vram),)
    engines = {
        "torch": EngineInfo("1", "b", gpus),
        "llama.cpp": EngineInfo("1", "b", gpus, quantised_formats=("q4_k_m", "q8_0")),
    }
    return Seen(Machine("Linux", "Ryzen", 8, 64 * 10**9, ()), engines)


def _plan(name: str = "standard", *, vram: int | None = None, **options: object) -> SuitePlan:
    return plan_suite(SUITES[name], Options(**options), _seen(vram=vram))


def _skipped(plan: SuitePlan) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = {}
    for part in plan.parts:
        for each in part.skipped:
            found.setdefault((str(each.work), str(each.case)), set()).add(each.reason)
    return found


@pytest.mark.parametrize("name", list(SUITES))
@pytest.mark.parametrize("vram", [None, RTX_5090, 8 * 2**30])
def test_every_case_of_every_engine_is_run_or_skipped(name: str, vram: int | None) -> None:
    plan = _plan(name, vram=vram)
    for part in plan.parts:
        told = Counter((each.work.backend, each.case) for each in part.skipped)
        told += Counter((work.backend, case) for work in part.plan.works for case in part.plan.cases_of(work))
        assert told == Counter((backend, case) for backend in ("torch", "llama.cpp") for case in part.entry.cases)
        assert all(each.reason for each in part.skipped)
        assert part.plan.suite == f"{name}-1"


def test_an_rtx_5090_offloads_the_largest_model_and_holds_the_others_whole() -> None:
    plan = _plan(vram=RTX_5090)
    whole, largest = plan.parts[:-1], plan.parts[-1]
    for part in whole:
        assert {work.settings.n_gpu_layers for work in part.plan.works} == {-1}
        assert not part.guessed
    (work,) = largest.plan.works
    assert largest.guessed == (work,)
    # With a pencil: 70.55 B parameters at 4.82 bits are 42.5 GB, of which the LM head, 128256 · 8192 at 6.56 bits, is
    # 0.86 GB, and each of 80 layers about 0.51 GB. 33408 tokens add 33408 · 2 · 8 · 128 · 2 B = 0.137 GB to a layer.
    # (34.19 GB - 0.86 GB) / 0.65 GB = 51 layers, fewer for what the engine computes in, one more for the output layer.
    assert 47 <= work.settings.n_gpu_layers <= 52
    assert [str(case) for case in largest.plan.cases_of(work)] == [f"p512 n128 d{depth}" for depth in DEPTHS]
    assert {each.work.backend for each in largest.skipped} == {"torch"}
    assert all(re.search(r"has no \w+ weights \(-w\)", each.reason) for each in largest.skipped)


def test_a_resumed_run_keeps_to_the_layers_that_were_found(tmp_path: Path) -> None:
    """Rates at several depths tell of the depth alone, though the longest case is done and more would fit by now."""
    asked = {"vram": RTX_5090, "output": tmp_path / "rows.csv", "machine": "here"}
    part = _plan(**asked).parts[-1]
    (guess,) = part.guessed
    found, longest = with_layers(guess, guess.settings.n_gpu_layers - 3), part.entry.cases[-1]
    store = Store(tmp_path / "rows.csv")
    for _ in range(5):
        row = not_tried(part.plan, found, longest, "run", status="failed", reason="")
        store.append(row | {"status": "ok"})
    resumed = _plan(**asked, resume=True).parts[-1]
    assert resumed.plan.works == (found,)
    assert resumed.plan.cases_of(found) == part.entry.cases[:-1]
    assert (len(resumed.measured), resumed.guessed) == (5, ())
    assert _plan(**asked, resume=True, n_gpu_layers=(20,)).parts[-1].measured == (), (
        "what was asked for is another work"
    )


def test_layers_that_were_asked_for_are_not_chosen() -> None:
    plan = _plan(vram=RTX_5090, n_gpu_layers=(20,))
    works = [work for part in plan.parts for work in part.plan.works]
    assert {work.settings.n_gpu_layers for work in works if work.backend == "llama.cpp"} == {20}
    assert not any(part.guessed for part in plan.parts)


def test_a_context_too_long_for_the_card_is_offloaded_alone() -> None:
    # Llama 3.1 8B in bf16 is 16.06 GB; 33408 tokens of 131072 B are 4.4 GB, 8832 are 1.2 GB.
    found = {
        work.settings.n_gpu_layers == -1: [case.n_depth for case in part.plan.cases_of(work)]
        for part in _plan(vram=19 * 10**9).parts[1:2]
        for work in part.plan.works
        if work.backend == "llama.cpp"
    }
    assert found == {True: [0, 8192], False: [32768]}


def test_memory_too_small_is_told_case_by_case(monkeypatch: pytest.MonkeyPatch) -> None:
    _has(monkeypatch, ram=19e9)
    plan = _plan()
    skipped = _skipped(plan)
    assert ("llama-3.1-8b bf16 on llama.cpp", "p512 n128 d8192") not in skipped
    (reason,) = skipped["llama-3.1-8b bf16 on llama.cpp", "p512 n128 d32768"]
    assert reason == "llama-3.1-8b bf16 on llama.cpp needs about 20.9 GB, but 19.0 GB are free in this machine's memory"
    assert all(skipped["llama-3.1-70b q4_k_m on llama.cpp", f"p512 n128 d{depth}"] for depth in DEPTHS)


def test_a_disk_too_small_costs_what_it_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    _has(monkeypatch, disk=30e9)
    plan = _plan()
    # Published sizes: Llama 3.1 8B in bf16 16.06 GB, Qwen3 30B in Q4_K_M 18.6 GB; Llama 3.1 70B 42.5 GB. Nothing else
    # is written on the way.
    assert [bool(part.plan.works) for part in plan.parts] == [True, True, True, True, False]
    assert plan.parts[1].plan.disk_bytes == pytest.approx(16.06e9, rel=0.01)
    assert plan.parts[3].plan.disk_bytes == pytest.approx(18.6e9, rel=0.01)
    (reason,) = _skipped(plan)["llama-3.1-70b q4_k_m on llama.cpp", "p512 n128 d0"]
    assert reason.startswith("the model files need 42.5")
    assert plan.disk_bytes <= 30e9


def test_time_too_short_is_told() -> None:
    plan = _plan("quick", max_time_s=1.0)
    assert not any(part.plan.works for part in plan.parts)
    assert all("--max-time leaves 1 s" in each.reason for each in plan.parts[0].skipped)
    assert plan.seconds == 0


def test_what_is_run_is_the_suites_own() -> None:
    asked = {"models": "gpt2-mini", "weights": "f32", "n_prompt": 7, "seed": 9, "kv_offload": (False,)}
    plan, other = _plan("quick"), _plan("quick", **asked)
    assert [part.plan.works for part in plan.parts] == [part.plan.works for part in other.parts]
    assert [part.plan.seed for part in other.parts] == [1, 1]


def test_eight_bits_of_kv_cache_are_each_engines_own() -> None:
    (part,) = (part for part in _plan("full").parts if part.entry.kv_format == "8bit")
    (work,) = part.plan.works
    assert (work.backend, work.settings.kv_k_format, work.settings.kv_v_format) == ("llama.cpp", "q8_0", "q8_0")


_cases = st.builds(Case, st.integers(0, 60_000), st.integers(1, 600), st.integers(0, 200), st.integers(1, 16))


@given(st.lists(_cases, min_size=1, max_size=5, unique=True), st.floats(1e9, 1e11), st.floats(1e9, 1e11))
def test_each_case_has_one_place(cases: list[Case], vram: float, ram: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        _has(patch, ram=ram)
        patch.setattr("harness.estimate.host_rates", lambda: Rates(1e10, 1e11))
        source = resolve("llama-3.1-8b")
        seen = _seen(vram=int(vram))
        (work,) = combinations(Options(weights="4bit"), [source], {"llama.cpp": seen.engines["llama.cpp"]})
        found = places(work, tuple(cases))
    placed = [case for some in found.fitting.values() for case in some]
    assert sorted([*placed, *found.lacking]) == sorted(cases)
    assert all(found.lacking.values())
    assert {replace(each, settings=work.settings) for each in found.fitting} <= {work}
    # What fits is smaller than what does not, in tokens.
    tokens = [case.batch * case.context_tokens for case in placed]
    assert all(max(tokens, default=0) <= case.batch * case.context_tokens for case in found.lacking)


def test_a_part_may_have_nothing_to_run() -> None:
    suite = Suite("none", 1, (Entry("gpt2-mini", "4bit", (Case(0, 8, 8),)),), 1, 1)
    seen = _seen()
    plan = plan_suite(suite, Options(), replace(seen, engines={"torch": seen.engines["torch"]}))
    assert (plan.seconds, plan.memory_bytes, plan.disk_bytes) == (0, 0, 0)
    assert len(plan.parts[0].skipped) == 1
