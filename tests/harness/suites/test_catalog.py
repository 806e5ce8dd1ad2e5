"""What the suites hold: fixed for each version, and such that it can run."""

from dataclasses import replace

import pytest

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.models.source import resolve
from harness.quantise.names import check_known
from harness.suites.catalog import SUITES, Suite, named
from harness.workload import Case

# Rows of one label are compared all over the world. Whoever changes what a suite runs raises its version and writes the
# new fingerprint beside the new label; the line of the old label goes, since nobody can run it any more.
FINGERPRINTS = {
    "quick-1": "d647c39cb4a0fd3644980d455b7b14d6ae363aeb0844575cadd446d89eafa460",
    "standard-1": "f5c007867b5fa488f113700bdbd48cc8782b5df00b8e2f31f5b5353336440658",
    "full-1": "0b884f7c0962ed2faf04141bb76854d5fcda1af3e7d7f7d1245722f21bebf819",
}

EVERY = pytest.mark.parametrize("suite", SUITES.values(), ids=list(SUITES))


def test_a_suite_that_changed_has_a_new_version() -> None:
    assert {suite.label: suite.fingerprint for suite in SUITES.values()} == FINGERPRINTS


def test_standard_is_what_people_really_use() -> None:
    """As it was agreed on: the models and formats, at three depths, with the prompt of a run without flags."""
    suite = named("standard")
    assert [(entry.model, entry.weights) for entry in suite.entries] == [
        ("llama-3.2-1b", "bf16"),
        ("llama-3.1-8b", "bf16"),
        ("llama-3.1-8b", "4bit"),
        ("qwen3-30b-a3b", "4bit"),
        ("llama-3.1-70b", "4bit"),
    ]
    for entry in suite.entries:
        assert entry.cases == tuple(Case(depth, 512, 128) for depth in (0, 8192, 32768))


def test_each_suite_meets_the_next_larger_one() -> None:
    quick, standard, full = (_work(named(name)) for name in ("quick", "standard", "full"))
    assert quick & standard == {("llama-3.2-1b", "bf16", "auto", Case(0, 512, 128))}
    assert standard < full


def _work(suite: Suite) -> set[tuple[str, str, str, Case]]:
    return {(each.model, each.weights, each.kv_format, case) for each in suite.entries for case in each.cases}


@EVERY
def test_everything_in_it_can_run_somewhere(suite: Suite) -> None:
    kv_formats = {"auto", *(name for backend in BACKENDS.values() for name in backend.kv_formats)}
    for entry in suite.entries:
        source = resolve(entry.model)
        check_known((entry.weights,))
        assert entry.kv_format in kv_formats
        assert source.architecture.max_context is not None
        assert all(case.context_tokens <= source.architecture.max_context for case in entry.cases)
        assert len(set(entry.cases)) == len(entry.cases)


@EVERY
def test_any_change_shows(suite: Suite) -> None:
    first, *rest = suite.entries
    changed = [
        replace(suite, launches=suite.launches + 1),
        replace(suite, repetitions=suite.repetitions + 1),
        replace(suite, entries=(*rest, first, first)),
        *(
            replace(suite, entries=(replace(first, **{name: value}), *rest))
            for name, value in {
                "model": "gpt2-mini",
                "weights": "f32",
                "kv_format": "f32",
                "cases": (Case(0, 512, 127), *first.cases[1:]),
            }.items()
        ),
    ]
    assert suite.fingerprint not in {each.fingerprint for each in changed}
    assert replace(suite, version=9).fingerprint == suite.fingerprint, "what is run, by whatever name"


def test_an_unknown_suite_is_told() -> None:
    with pytest.raises(UserError, match=r"^--suite large: is none of quick, standard, full$"):
        named("large")
