"""A report as files: the page as HTML and as Markdown, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pandas as pd

from reports import html, markdown
from reports.figures import FIGURES, Drawn, Missing, to_png, to_svg
from reports.files import replace_file
from reports.page.page import build
from reports.page.parts import Picture
from reports.words import words as words_of

if TYPE_CHECKING:
    from pathlib import Path

    from reports.gather import Gathered
    from reports.words import Words

Format = Literal["html", "md"]

_WITH_PUBLISHED = "roofline"  # the one figure in which others' rates lie under one's own


def write_report(gathered: Gathered, folder: Path, formats: tuple[Format, ...], lang: str) -> list[Path]:
    """Write `index.html` and `report.md`, or one of them, and `figures/` into a folder, which is made.

    Args:
        gathered: the rows; the published ones among them are drawn under the roofline.
        folder: where to; files of these names are replaced, and figures that these rows do not allow are removed.
        formats: "html" and "md".
        lang: of `reports.words.LANGUAGES`.

    Returns:
        The pages that were written.

    Raises:
        OSError: it cannot be written.
    """
    words = words_of(lang)
    drawn = {name: draw(name, gathered, words) for name in FIGURES} if len(gathered.own) else {}
    figures = folder / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    pictures = []
    for name, figure in drawn.items():
        pictures.append(_picture(name, figure, words))
        if isinstance(figure, Drawn):
            replace_file(figures / f"{name}.svg", pictures[-1].svg)
            replace_file(figures / f"{name}.png", to_png(figure))
    for name in FIGURES.keys() - {picture.name for picture in pictures if picture.svg}:  # of other rows, by now
        for ending in ("svg", "png"):
            (figures / f"{name}.{ending}").unlink(missing_ok=True)
    page = build(gathered, pictures, words, lang)
    texts = {"html": ("index.html", html.render), "md": ("report.md", markdown.render)}
    written = []
    for form in formats:
        file, render = texts[form]
        replace_file(folder / file, render(page, words))
        written.append(folder / file)
    return written


def draw(name: str, gathered: Gathered, words: Words) -> Drawn | Missing:
    """One figure of `FIGURES`, of the rows that count."""
    rows = gathered.own
    if name == _WITH_PUBLISHED and len(gathered.published):
        rows = pd.concat([rows, gathered.published], ignore_index=True)
    return FIGURES[name](rows, words)


def _picture(name: str, figure: Drawn | Missing, words: Words) -> Picture:
    if not isinstance(figure, Drawn):
        return Picture(name, figure.title, missing=figure.reason)
    return Picture(name, figure.title, words[f"page.caption.{name}"], figure.alt, to_svg(figure))
