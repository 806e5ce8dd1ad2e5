"""What counts as the same work where engines are compared, each of which has formats of its own.

Quantised weights are then alike where their names promise the same bits (`results.weight_width`): each engine quantises
in its own way, so neither format nor bytes can be equal. Nothing is alike across widths, nor a plain format another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from results.compare.settings import ASKED
from results.weight_width import nominal_bits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

KV = ["kv_k_format", "kv_v_format"]
# Each engine keeps its keys and values in its own usual format. These two are of one size, and so one amount of work.
_SIXTEEN_BITS = {"f16": "f16 or bf16", "bf16": "f16 or bf16"}
_FORMAT = "exact weight_format"


def alike(lines: pd.DataFrame) -> pd.DataFrame:
    """Lines whose formats are replaced by what engines have in common; `weight_format` itself is in a new column."""
    formats = lines["weight_format"]
    widths = {name: f"{bits} bits" for name in formats.unique() if (bits := nominal_bits(name))}
    return lines.assign(
        **lines[KV].replace(_SIXTEEN_BITS),
        weight_format=formats.replace(widths),
        weights_id=lines["weights_id"].mask(formats.isin(widths), "of its own making"),
        **{_FORMAT: formats},
    )


def with_format(runner: Sequence[str]) -> list[str]:
    """What ran the work, with the engine's own format: of several that are alike, none is chosen silently."""
    return [*(name for name in runner if name != f"{ASKED}weights"), _FORMAT]
