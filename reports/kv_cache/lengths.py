"""The same texts with the KV cache and without: their times, and those of their steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from reports.figures.data import WORK, lines, own

if TYPE_CHECKING:
    from collections.abc import Iterator

TEXT = [*WORK, "n_prompt", "batch"]
WAYS = ("on", "off")
# Seconds from the prompt to the last token and of a step, each also at the ceilings.
_TIMES = ["total", "total_least", "step", "step_least"]
_PEAKS = ["peak_device_bytes", "peak_host_bytes", "kv_cache_bytes"]


def texts(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """For each engine and prompt, the lengths that were measured in both ways.

    Args:
        rows: as `results.verify.verify` gives them.

    Yields:
        One line a length, the shortest first: the columns of `TEXT`; `length`, tokens of prompt and answer; and, each
        with `_on` and `_off`, the columns of `_TIMES`, NaN where one is not known, the `spread` of the total, and the
        columns of `_PEAKS`.
    """
    kept = own(rows, WAYS)
    kept = kept[(kept["n_prompt"] > 0) & (kept["n_gen"] > 1)]
    batch, steps = kept["batch"].astype(float), kept["n_gen"].astype(float) - 1
    # An engine may have a loop of its own for each way: it is the same engine for all that.
    kept = kept.assign(engine_mode=None, step=kept["tpot_s"], step_least=batch / kept["decode_ceiling_tok_s"])
    kept = kept.assign(
        total=kept["ttft_s"] + steps * kept["step"],
        total_least=batch * kept["n_prompt"] / kept["prefill_ceiling_tok_s"] + steps * kept["step_least"],
        length=kept["n_prompt"] + kept["n_gen"],
    )
    found = lines(kept, [*TEXT, "length", "kv_cache"], "total", _TIMES[1:], _PEAKS)
    found = found[[*TEXT, "length", "kv_cache", *_TIMES, "spread", *_PEAKS]]
    on, off = (found[found["kv_cache"] == way].drop(columns="kv_cache") for way in WAYS)
    both = on.merge(off, on=[*TEXT, "length"], suffixes=("_on", "_off"))
    for _, text in both.groupby(TEXT, dropna=False, sort=False):
        yield text.sort_values("length", ignore_index=True)


def steps_of(text: pd.DataFrame) -> pd.DataFrame:
    """The mean step of each length.

    Args:
        text: of `texts`.

    Returns:
        `first` and `last`, the tokens that the first and the last step look at; `on`, `off`, and, at the ceilings,
        `on_least` and `off_least`, seconds a step.
    """
    seconds = {way + least: text[f"step{least}_{way}"].astype(float) for way in WAYS for least in ("", "_least")}
    ends = {"first": text["n_prompt"].astype(int) + 1, "last": text["length"].astype(int) - 1}
    return pd.DataFrame(ends | seconds)
