"""Everything that runs on one machine: the workload, the plan, the runner and its workers.

From a notebook:

    import harness
    plan = harness.make_plan(harness.Options(models=("gpt2-mini",), n_prompt=(64,), n_gen=(32,)))
    rows = harness.run(plan)  # a pandas.DataFrame; the CSV and its samples are on disk as well
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.errors import TokenroofError, UserError
    from harness.options import Options
    from harness.plan import Plan, make_plan
    from harness.runner import run

__all__ = ["Options", "Plan", "TokenroofError", "UserError", "make_plan", "run"]

_HOME = {
    "Options": "harness.options",
    "Plan": "harness.plan",
    "make_plan": "harness.plan",
    "run": "harness.runner",
    "TokenroofError": "harness.errors",
    "UserError": "harness.errors",
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import on first use: a worker and `--help` need none of it."""
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
