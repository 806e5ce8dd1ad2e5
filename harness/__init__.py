"""Everything that runs on one machine: the workload, the plan, the runner and its workers.

From a notebook:

    import harness
    plan = harness.make_plan(harness.Options(models=("gpt2-mini",), n_prompt=(64,), n_gen=(32,)))
    rows = harness.run(plan)  # a pandas.DataFrame; the CSV and its samples are on disk as well
    harness.models_table()    # the presets; harness.clean_models() frees the disk
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.errors import TokenroofError, UserError
    from harness.models.cache import clean as clean_models
    from harness.models.presets_table import models_table
    from harness.options import Options
    from harness.plan import Plan, make_plan
    from harness.runner import run
    from harness.serving.plan import make_plan as plan_server
    from harness.serving.runner import run as run_server
    from harness.suites.catalog import named as suite
    from harness.suites.plan import plan_suite
    from harness.suites.run import run_suite

__all__ = [
    "Options",
    "Plan",
    "TokenroofError",
    "UserError",
    "clean_models",
    "make_plan",
    "models_table",
    "plan_server",
    "plan_suite",
    "run",
    "run_server",
    "run_suite",
    "suite",
]

_HOME = {
    "Options": ("harness.options", "Options"),
    "Plan": ("harness.plan", "Plan"),
    "TokenroofError": ("harness.errors", "TokenroofError"),
    "UserError": ("harness.errors", "UserError"),
    "clean_models": ("harness.models.cache", "clean"),
    "make_plan": ("harness.plan", "make_plan"),
    "models_table": ("harness.models.presets_table", "models_table"),
    "plan_server": ("harness.serving.plan", "make_plan"),
    "plan_suite": ("harness.suites.plan", "plan_suite"),
    "run": ("harness.runner", "run"),
    "run_server": ("harness.serving.runner", "run"),
    "run_suite": ("harness.suites.run", "run_suite"),
    "suite": ("harness.suites.catalog", "named"),
}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Import on first use: a worker and `--help` need none of it."""
    if name in _HOME:
        module, attribute = _HOME[name]
        return getattr(importlib.import_module(module), attribute)
    raise AttributeError(f"module 'harness' has no attribute {name!r}")
