"""How many layers fit: the search against counting, and real loads of a real engine."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.experiments.fit import estimate, holds, largest, with_layers
from harness.models.artifact_weights import artifact_weights
from harness.models.artifacts import Artifact, prepare
from harness.options import Options
from harness.plan import make_plan
from harness.work import Work
from harness.workload import Case

numbers = st.integers(0, 200)


@given(numbers, st.integers(1, 200), numbers)
def test_the_search_finds_what_counting_finds(true: int, most: int, guess: int) -> None:
    assert largest(lambda number: number <= true, guess, most) == min(true, most)


@given(st.integers(1, 200), st.integers(-2, 2))
def test_a_good_guess_takes_few_trials(true: int, off: int) -> None:
    tried: list[int] = []

    def fits(number: int) -> bool:
        tried.append(number)
        return number <= true

    assert largest(fits, true + off, 300) == true
    assert len(tried) <= 4
    assert len(set(tried)) == len(tried)


def test_all_that_fits_takes_one_trial() -> None:
    tried: list[int] = []
    assert largest(lambda number: not tried.append(number), 33, 33) == 33  # type: ignore[func-returns-value]
    assert tried == [33]


def _work(tier: str, tmp_path: Path) -> Work:
    options = Options(
        models=("gpt2-mini",), n_prompt=(4,), n_gen=(4,), backends=("llama.cpp",), n_gpu_layers=(0,), rpc=(tier,),
        n_threads=(1,), n_ubatch=(32,), output=tmp_path / "rows.csv",
    )  # fmt: skip
    (work,) = make_plan(options).works
    return work


def _artifact(work: Work) -> Artifact:
    return prepare(work.source, work.artifact_kind, work.settings.weights, lambda *_: None)


def test_a_small_model_fits_whole(tier: str, tmp_path: Path) -> None:
    work = _work(tier, tmp_path)
    artifact = _artifact(work)
    weights = artifact_weights(artifact.path, work.source.architecture)
    assert estimate(work, weights, Case(0, 4, 4)) == 4  # three layers and the output layer
    assert holds(with_layers(work, 4), artifact, Case(0, 4, 4), 300)
    assert holds(with_layers(work, 0), artifact, Case(0, 4, 4), 300)


def test_a_real_server_without_room_for_all_gets_what_fits(small_tier: str, tmp_path: Path) -> None:
    # A layer's KV cache takes 2^18 tokens · 2 · 384 · 2 B = 403 MB; the output layer 39 MB, masks and logits less.
    work = _work(small_tier, tmp_path)
    artifact, case = _artifact(work), Case(2**18 - 8, 4, 4)
    assert [holds(with_layers(work, layers), artifact, case, 300) for layers in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]
    assert holds(with_layers(work, 4), artifact, Case(0, 4, 4), 300)  # it has survived


def test_another_failure_is_told(tier: str, tmp_path: Path) -> None:
    work = _work(tier, tmp_path)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF")
    with pytest.raises(UserError, match=r"-ngl 2 .*: broken\.gguf"):
        holds(with_layers(work, 2), replace(_artifact(work), path=broken), Case(0, 4, 4), 300)
