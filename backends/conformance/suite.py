"""Which clauses there are, and what became of each on a session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.conformance import allocation, answers, reset, told
from backends.conformance.requirements import BrokenClauseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.base import Session

    Check = Callable[[Session, float], None]


@dataclass(frozen=True)
class CheckResult:
    """One clause of the contract: its name, whether it held, and what was seen if it did not."""

    name: str
    ok: bool
    detail: str = ""


def assert_conforms(make_session: Callable[[], Session], tolerance: float) -> None:
    """Run the suite.

    Raises:
        AssertionError: names every clause that failed, one a line.
    """
    failed = [result for result in run(make_session, tolerance=tolerance) if not result.ok]
    if failed:
        raise AssertionError("\n".join(f"{result.name}: {result.detail}" for result in failed))


def run(make_session: Callable[[], Session], *, tolerance: float) -> list[CheckResult]:
    """Check every clause on one session, which each check allocates anew and the last one closes.

    Args:
        make_session: Loads the model and returns a session that nobody has used.
        tolerance: Largest relative difference that is rounding: about 1e-4 in float32, 0.05 in bfloat16.
    """
    session = make_session()
    return [_result(check, session, tolerance) for check in checks()]


def checks() -> tuple[Check, ...]:
    """Every check, in the order in which they run: the first needs a fresh session, the last closes it."""
    return (
        told.facts_before_allocation,
        answers.logits_are_float32_and_finite,
        answers.prefill_returns_the_last_argmax,
        answers.decode_returns_each_argmax,
        answers.pieces_equal_the_whole,
        answers.decode_continues_where_it_ended,
        answers.recompute_answers_as_cached_decode,
        reset.reset_keeps_a_prefix,
        reset.a_kept_prefix_serves_another_text,
        reset.reset_keeps_no_more_than_there_is,
        reset.reset_forgets_everything,
        allocation.sequences_of_a_batch_do_not_mix,
        allocation.allocate_starts_empty,
        allocation.allocation_holds_what_was_asked,
        allocation.overflow_is_an_error,
        told.facts_are_sane,
        told.memory_is_sane,
        told.experts_are_counted_or_not_told,
        told.closing_raises_nothing,
    )


def _result(check: Check, session: Session, tolerance: float) -> CheckResult:
    try:
        check(session, tolerance)
    except BrokenClauseError as broken:
        return CheckResult(check.__name__, ok=False, detail=str(broken))
    except Exception as error:  # noqa: BLE001  (whatever an engine raises is the finding, not the suite's end)
        return CheckResult(check.__name__, ok=False, detail=f"{type(error).__name__}: {error}")
    return CheckResult(check.__name__, ok=True)
