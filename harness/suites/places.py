"""Where a model goes that may be larger than the fast memory: whole if it fits, else as many layers as do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.experiments.fit import estimate, with_layers
from harness.limits import shortage
from harness.models.artifact_weights import weights_of

if TYPE_CHECKING:
    from harness.work import Work
    from harness.workload import Case

_ALL = -1


@dataclass(frozen=True)
class Places:
    """The cases that fit somewhere, by the work that says where, and why the others do not."""

    fitting: dict[Work, tuple[Case, ...]]
    lacking: dict[Case, str]


def places(work: Work, cases: tuple[Case, ...]) -> Places:
    """Place each case.

    All layers go off the host where a case leaves room for them, or where the user said how many do. The other cases
    share one number of layers, by estimate the most that the longest of them leaves room for, so that rates at several
    depths tell of the depth alone.
    """
    whole = tuple(case for case in cases if shortage(work, (case,)) is None)
    rest = [case for case in cases if case not in whole]
    fitting = {work: whole} if whole else {}
    lacking = {case: shortage(work, (case,)) or "" for case in rest}
    if rest and _may_be_split(work):
        some = with_layers(work, 1)  # which layers lie where does not matter as long as all memories together suffice
        lacking = {case: lacks for case in rest if (lacks := shortage(some, (case,)))}
        if spread := tuple(case for case in rest if case not in lacking):
            longest = max(spread, key=lambda case: case.batch * case.context_tokens)
            most = estimate(work, weights_of(work.source, work.roofline_format), longest)
            fitting[with_layers(work, most)] = spread
    return Places(fitting, lacking)


def _may_be_split(work: Work) -> bool:
    return work.spreads and work.accelerator is not None and work.settings.n_gpu_layers == _ALL
