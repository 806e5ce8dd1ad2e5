"""The time that --max-time allows, spent case by case in a suite's order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.work import Work
    from harness.workload import Case


class Budget:
    """Takes what fits by estimate; a case that takes too long is passed over, and shorter ones after it are not.

    Args:
        seconds: in all; None: without end.
        launches, repetitions: of each case.
    """

    def __init__(self, seconds: float | None, launches: int, repetitions: int) -> None:
        self._left_s, self._launches, self._repetitions = seconds, launches, repetitions

    def take(self, work: Work, cases: tuple[Case, ...]) -> tuple[tuple[Case, ...], dict[Case, str]]:
        """The cases that there is time for, and why not of the others."""
        estimate = work.estimate(cases)
        within: list[Case] = []
        over: dict[Case, str] = {}
        for case in cases:
            begun_s = estimate.launch_s({}) if within else 0.0
            needed_s = self._launches * (estimate.launch_s({case: self._repetitions}) - begun_s)
            if self._left_s is not None and needed_s > self._left_s:
                left = duration(self._left_s)
                over[case] = f"about {duration(needed_s)} of measuring, and --max-time leaves {left} for it"
                continue
            within.append(case)
            if self._left_s is not None:
                self._left_s -= needed_s
        return tuple(within), over


def duration(seconds: float) -> str:
    """For people: 40 s, 12 min, 3.5 h."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
