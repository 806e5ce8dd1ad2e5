"""How many layers to take off the host: the most that fit, the rate there, and the rates on the way.

The ends are measured first, side by side: a memory slower than the host's has its best point at 0. Then the points
between, fewest layers first, up to the knee: the first that is no faster than the one before, if the most layers are
no faster than it either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from harness import prepare
from harness.errors import UserError
from harness.experiments.fit import most_layers, with_layers
from harness.limits import memory_obstacle
from harness.models import cache
from harness.plan import make_plan
from harness.progress import ConsoleReporter
from harness.runner import run

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.options import Options
    from harness.plan import Plan
    from harness.progress import Reporter

_BACKEND = "llama.cpp"  # the only engine that places part of a model
_STEPS = 4


@dataclass(frozen=True)
class Offload:
    """What the sweep found.

    Attributes:
        plan: of the whole; its works are the two ends.
        rows: as `runner.run` gives them.
        most: the largest `-ngl` that fits.
        left_out: points beyond the knee.
    """

    plan: Plan
    rows: pd.DataFrame
    most: int
    left_out: tuple[int, ...]


def offload(options: Options, reporters: Callable[[], Reporter] = ConsoleReporter) -> Offload:
    """Find the largest `-ngl`, measure it, 0 and what lies between, and append the rows to the output.

    Args:
        options: of one model, format and case; the engine and the layers are chosen here.
        reporters: makes one for each run.

    Raises:
        UserError: there is no second memory, not even the output layer fits it, or as `make_plan` and `run`.
    """
    plan = make_plan(replace(options, backends=(_BACKEND,), n_gpu_layers=(0, -1)))
    most = _most(plan, reporters())
    ends = _of_layers(plan, (0, most))
    rows = [run(ends, reporters())]
    before, left = 0, list(points(most)[1:-1])
    while left:
        layers = left.pop(0)
        rows.append(run(_of_layers(plan, (layers,)), reporters()))
        found = pd.concat(rows, ignore_index=True)
        if is_knee(found, before, layers, most):
            break
        before = layers
    return Offload(ends, pd.concat(rows, ignore_index=True), most, tuple(left))


def points(most: int) -> tuple[int, ...]:
    """0, quarters of the largest `-ngl`, and that."""
    return tuple(sorted({round(most * step / _STEPS) for step in range(_STEPS + 1)}))


def is_knee(rows: pd.DataFrame, before: int, layers: int, most: int) -> bool:
    """Whether more layers have ceased to help: this point is no faster than the one before, nor the most than this."""
    return not is_faster(rows, before, layers) and not is_faster(rows, layers, most)


def is_faster(rows: pd.DataFrame, before: int, after: int) -> bool:
    """Whether `-ngl` `after` decodes faster than `before` by more than both vary; a point without a rate does not."""
    (rate, sd), (next_rate, next_sd) = (_rate(rows, layers) for layers in (before, after))
    return next_rate - rate > math.hypot(sd, next_sd)


def _rate(rows: pd.DataFrame, n_gpu_layers: int) -> tuple[float, float]:
    """The median rate and the standard deviation of the repetitions; NaN where none was measured."""
    ok = rows[(rows["n_gpu_layers"] == n_gpu_layers) & (rows["status"] == "ok")]["decode_tok_s"].astype(float)
    return float(ok.median()), float(ok.std()) if len(ok) > 1 else 0.0


def _most(plan: Plan, reporter: Reporter) -> int:
    work, (case, *_) = plan.works[0], plan.cases
    if not work.engine.accelerators:
        raise UserError(
            "the installed llama.cpp sees no memory beside the host's, so there is nothing to offload to: install it "
            "with support for this machine's GPU, or lend it another machine's memory (tokenroof serve-tier there, "
            "--rpc HOST:PORT here)"
        )
    try:
        with cache.in_use():
            artifact = prepare.artifacts(plan, reporter)[work]
            most = most_layers(work, artifact, case, plan.timeout_s, reporter)
    finally:
        reporter.close()
    if most == 0:
        raise UserError(f"{work}: not even the output layer fits beside the host's memory; take a smaller model (-m)")
    return most


def _of_layers(plan: Plan, counts: tuple[int, ...]) -> Plan:
    works = tuple(with_layers(plan.works[0], layers) for layers in counts)
    obstacles = (memory_obstacle(work, plan.cases) for work in works)
    return replace(plan, works=works, obstacle=next(filter(None, obstacles), None), notes=())
