"""Decode rates at depth of engines that differ in what their KV cache is: its format, its heads, its kind."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from reports import summary
from reports.figures.data import lines, own
from reports.figures.texts import joined

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd

    from reports.words import Words

ENGINE = ["machine", "backend", "base", "weight_format", "batch"]
VARIANT = ["shape", "kv_k_format", "kv_v_format", "kind"]
_RATE = "decode_tok_s"
_MEDIANS = ["ttft_s", "kv_bytes_per_token", "decode_ceiling_tok_s", "kv_read_bytes", "kv_quality_kl", "kv_quality_top1"]
_LARGEST = ["kv_cache_bytes"]
_MOST = 30
_SHAPE = re.compile(r"-((?:kv|window)\d+)$")  # as the experiments name their models
_NAMES = {"kv": "kv_cache.heads.name", "window": "kv_cache.window.name"}


def depths(rows: pd.DataFrame) -> pd.DataFrame:
    """One line for each variant and depth, in the order of the rows.

    Returns:
        The columns of `ENGINE` (`base`: the model without what tells its shape) and `VARIANT` (`shape`: as "kv2" for
        two KV heads, "window64"; `kind`: of transformers' caches; empty for the backend's own), `context`,
        `decode_tok_s`, `spread`, and the columns of `_MEDIANS` and `_LARGEST`.
    """
    kept = own(rows)
    kept = kept.assign(
        base=kept["model"].str.replace(_SHAPE, "", regex=True),
        shape=kept["model"].str.extract(_SHAPE, expand=False).fillna(""),
        kind=[
            _kind(json.loads(asked), stored) for asked, stored in zip(kept["asked"], kept["kv_k_format"], strict=True)
        ],
    )
    by = [*ENGINE, *VARIANT, "context", "asked", *summary.ENGINE]
    return lines(kept, by, _RATE, _MEDIANS, _LARGEST)


def _kind(asked: Mapping[str, Any], stored: object) -> str:
    """The cache of transformers that was asked for: by its own name, or by that of the package that quantises it."""
    kind, form = asked.get("cache_kind"), asked.get("kv_k_format", "auto")
    return str(kind or ("" if form == "auto" or str(stored).startswith(form) else form))


def engines(found: pd.DataFrame) -> list[pd.DataFrame]:
    """The lines of each engine that has several variants."""
    groups = (group for _, group in found.groupby(ENGINE, sort=False))
    return [group for group in groups if len(group[VARIANT].drop_duplicates()) > 1]


def deepest(engine: pd.DataFrame) -> list[dict[str, Any]]:
    """Each variant at the greatest depth, with `model` as the name that they share."""
    return at(engine, engine["context"].max())


def at(engine: pd.DataFrame, context: float) -> list[dict[str, Any]]:
    """Each variant at a depth, with `model` as the name that they share."""
    there = engine[engine["context"] == context]
    records = there.assign(model=there["base"]).to_dict("records")
    return [{str(column): value for column, value in line.items()} for line in records]


def count(line: Mapping[Any, Any], of: str) -> int:
    """The number in a shape: of its "kv" heads, or of the tokens of its "window"; 0 where it has none of them."""
    shape = str(line["shape"])
    return int(shape.removeprefix(of)) if shape.startswith(of) else 0


def variant(line: Mapping[Any, Any], words: Words) -> str:
    """What tells it from the others of its engine: `q8_0`, `KV heads 2`, `static`."""
    k, v = line["kv_k_format"], line["kv_v_format"]
    named = next((words[key].format(n=count(line, of)) for of, key in _NAMES.items() if count(line, of)), "")
    return joined([named or (k if k == v else f"{k}/{v}"), line["kind"]], _MOST)


def listed(variants: Sequence[Mapping[Any, Any]], values: Sequence[str], words: Words) -> str:
    """`f16: 4,608; q8_0: 2,448`."""
    entries = zip((variant(line, words) for line in variants), values, strict=True)
    return words["kv_cache.comma"].join(f"{name}: {value}" for name, value in entries)
