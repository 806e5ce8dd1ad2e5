"""What a figure is asked for and what it answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reports.words import Words

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Drawn:
    """A figure, with what it is called and what it tells someone who cannot see it."""

    figure: Figure
    title: str
    alt: str


@dataclass(frozen=True)
class Missing:
    """A figure that the rows do not allow, and what to run to get it."""

    title: str
    reason: str


Draw = Callable[["pd.DataFrame", Words], Drawn | Missing]
"""Draws rows as `results.verify.verify` gives them, in the words of a language. Failed rows make no point."""
