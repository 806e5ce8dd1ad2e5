"""Every figure by its name; matplotlib is imported by the first one that is drawn."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from results.errors import ResultsError

if TYPE_CHECKING:
    import pandas as pd

    from reports.figures.contract import Draw, Drawn, Missing
    from reports.words import Words


def _draw(name: str) -> Draw:
    def draw(rows: pd.DataFrame, words: Words) -> Drawn | Missing:
        """Draw it.

        Raises:
            ResultsError: matplotlib is not installed.
        """
        try:
            style = import_module("reports.figures.style")
        except ModuleNotFoundError as error:
            if error.name != "matplotlib":
                raise
            raise ResultsError('figures need matplotlib: pip install "tokenroof[report]"') from error
        with style.applied():
            drawn: Drawn | Missing = import_module(f"reports.figures.{name}").draw(rows, words)
            return drawn

    return draw


def to_svg(drawn: Drawn) -> str:
    """A figure as an SVG document, whose text stays text: a reader's own fonts show it."""
    document: str = import_module("reports.figures.render").to_svg(drawn)
    return document


def to_png(drawn: Drawn) -> bytes:
    """A figure as PNG, in this machine's fonts: Japanese shows where one of them has it."""
    image: bytes = import_module("reports.figures.render").to_png(drawn)
    return image


FIGURES: dict[str, Draw] = {
    name: _draw(name)
    for name in (
        *("ceiling", "roofline", "quality", "depth", "ttft", "memory", "offload", "jitter"),
        *("kv_cache", "kv_rates", "kv_reuse", "kv_memory", "batch_sizes"),
    )
}
"""By name, in the order of the page."""
