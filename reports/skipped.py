"""Cases that a suite did not try, and that nobody made up for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from reports.summary import asked_of
from results.schema import CASE

if TYPE_CHECKING:
    import pandas as pd

_LAYERS = "n_gpu_layers"  # which a suite finds by loading, so a skipped row may have another number


def skipped_rows(own: pd.DataFrame) -> pd.DataFrame:
    """The skipped rows, but for those of cases that their run measured when it was resumed.

    Args:
        own: measured rows, failed and skipped ones too.
    """
    is_skipped = own["status"] == "skipped"
    if not is_skipped.any():
        return own[is_skipped]
    told = own.assign(asked=[_without_layers(asked) for asked in asked_of(own)])
    request = ["run_id", "machine", "backend", "model", "asked", *CASE]
    measured = (told["status"] == "ok").groupby([told[name] for name in request], dropna=False).transform("any")
    return own[is_skipped & ~measured]


def _without_layers(asked: str) -> str:
    settings = json.loads(asked)
    return json.dumps({name: value for name, value in settings.items() if name != _LAYERS}, sort_keys=True)
