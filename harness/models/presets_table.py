"""The presets with their sizes, as `tokenroof models` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.models import cache
from harness.models.artifacts import file_stem
from harness.models.presets import PRESETS
from harness.models.sizes import NATIVE_FORMAT, n_params, weight_bytes
from harness.models.source import can_run, resolve_shape
from harness.roofline.traffic import kv_bytes_per_token

if TYPE_CHECKING:
    import pandas as pd


def models_table() -> pd.DataFrame:
    """The presets: `name, params, weights_bytes, kv_bytes_per_token, cached_bytes, can_run`, at two bytes an element.

    Those that cannot run are shapes only, for predictions.
    """
    import pandas as pd  # noqa: PLC0415  # slow to import, and `resolve` is on the way to every error message

    cached = cache.list_cached()
    rows = []
    for source in map(resolve_shape, PRESETS):
        prefix = file_stem(source)
        cached_bytes = sum(artifact.n_bytes for artifact in cached if artifact.path.name.startswith(prefix))
        kv_bytes = kv_bytes_per_token(source.architecture, 2)
        params, weights = n_params(source), weight_bytes(source, NATIVE_FORMAT)
        rows.append((source.name, params, weights, kv_bytes, cached_bytes, can_run(source)))
    columns = ["name", "params", "weights_bytes", "kv_bytes_per_token", "cached_bytes", "can_run"]
    return pd.DataFrame(rows, columns=columns)
