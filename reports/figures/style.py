"""How all figures look: colours that colour-blind readers can tell apart, few lines, large text, always on white."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.font_manager import get_font_names
from matplotlib.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

INK = "#1f2328"
QUIET = "#57606a"
GRID = "#d8dee4"
PAPER = "#ffffff"

# Okabe and Ito, Color Universal Design (2008), without its yellow, which is too pale for white paper.
BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY = "#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9"
GREY, PALE = "#8c959f", "#c8cdd3"
_ENGINES = {"llama.cpp": BLUE, "torch": VERMILION, "mlx": GREEN}
_OTHERS = (PURPLE, ORANGE, SKY)
SERIES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")

SMALL, NORMAL = 11.0, 12.0  # points, on a page 10 inches wide: half of that can still be read

# matplotlib brings DejaVu and measures with it. Verdana is as wide; what both lack, the reader's own sans-serif has.
_SANS = ["DejaVu Sans", "Verdana"]
_JAPANESE = (
    *("Noto Sans CJK JP", "Noto Sans JP", "Hiragino Sans", "Yu Gothic", "Meiryo", "IPAexGothic", "TakaoPGothic"),
    *("Noto Serif CJK JP", "MS Gothic"),
)

_STYLE: dict[RcKeyType, Any] = {
    "svg.hashsalt": "tokenroof",
    "svg.fonttype": "none",
    "text.parse_math": False,  # a model's name may hold a dollar sign
    "text.color": INK,
    "font.family": ["sans-serif"],
    "font.sans-serif": _SANS,
    "font.size": NORMAL,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.labelsize": NORMAL,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.unicode_minus": False,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "hatch.color": QUIET,
    "hatch.linewidth": 0.8,
}


@contextmanager
def applied() -> Iterator[None]:
    """These settings and matplotlib's own, whatever the user's matplotlibrc says."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


@contextmanager
def installed_fonts(figure: Figure) -> Iterator[None]:
    """Let every text of a figure fall back to a Japanese font of this machine, where there is one."""
    installed = set(get_font_names())
    families = [*_SANS[:1], *(name for name in _JAPANESE if name in installed)]
    texts = figure.findobj(Text)
    before = [text.get_fontfamily() for text in texts]
    for text in texts:
        text.set_fontfamily(families)
    yield
    for text, family in zip(texts, before, strict=True):
        text.set_fontfamily(family)


def series_styles(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name, of as many as can be told apart."""
    return dict(zip(dict.fromkeys(names), zip(SERIES, MARKERS, strict=False), strict=False))


def engine_colors(backends: Iterable[str]) -> dict[str, str]:
    """One colour an engine, the same in every figure."""
    others = sorted(set(backends) - set(_ENGINES))
    return _ENGINES | {name: _OTHERS[number % len(_OTHERS)] for number, name in enumerate(others)}
