"""The time left of a run: the plan's estimate, corrected by how long the parts really took."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.work import Work
    from harness.workload import Case, Due


class Clock:
    """Counts estimated seconds as parts finish.

    A work's parts that are still ahead are scaled by what its finished parts took against their estimate.
    """

    def __init__(self, launches: list[tuple[Work, Due]], cases: tuple[Case, ...]) -> None:
        self._estimates = {work: work.estimate(cases) for work, _ in launches}
        self._ahead = dict.fromkeys(self._estimates, 0.0)
        self._expected = dict.fromkeys(self._estimates, 0.0)
        self._took = dict.fromkeys(self._estimates, 0.0)
        for work, launch in launches:
            self._ahead[work] += self._estimates[work].launch_s(launch)
        self._started = self._since = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._started

    @property
    def left_s(self) -> float:
        """Seconds that the rest should take."""
        return sum(max(ahead, 0.0) * self._scale(work) for work, ahead in self._ahead.items())

    def loaded(self, work: Work) -> None:
        """The model was loaded and its probe scored."""
        self.finish(work, self._estimates[work].load_s + self._estimates[work].probe_s)

    def warm(self, work: Work, case: Case) -> None:
        """A case's depth was filled and its warm-up run."""
        self.finish(work, self._estimates[work].fill_s[case] + self._estimates[work].case_s[case])

    def repetition(self, work: Work, case: Case) -> None:
        """A repetition was measured."""
        self.finish(work, self._estimates[work].case_s[case])

    def give_up(self, work: Work, case: Case, repetitions: int, *, warm: bool) -> None:
        """Repetitions that will not be done after all, with their warm-up if that did not come either."""
        estimate = self._estimates[work]
        self._ahead[work] -= repetitions * estimate.case_s[case]
        if not warm:
            self._ahead[work] -= estimate.fill_s[case] + estimate.case_s[case]

    def skip(self, work: Work) -> None:
        """A launch of which nothing is left is not begun."""
        self._ahead[work] -= self._estimates[work].load_s + self._estimates[work].probe_s

    def expect(self, work: Work, seconds: float) -> None:
        """Something beside its launches that a work will take."""
        self._ahead[work] += seconds

    def finish(self, work: Work, expected_s: float) -> None:
        """A part of a work that was expected to take so long is done."""
        now = time.monotonic()
        self._ahead[work] = max(self._ahead[work] - expected_s, 0.0)
        self._expected[work] += expected_s
        self._took[work] += now - self._since
        self._since = now

    def _scale(self, work: Work) -> float:
        return self._took[work] / self._expected[work] if self._expected[work] else 1.0
