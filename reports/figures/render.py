"""A drawn figure as a file. The same rows give the same bytes."""

from __future__ import annotations

import re
import warnings
from io import BytesIO
from typing import TYPE_CHECKING, Any

from reports.figures import style

if TYPE_CHECKING:
    from reports.figures.contract import Drawn

_PNG_DPI = 144  # twice the SVG's pixels, for a dense screen
# XML has no way to write these, which a hostile name may hold.
_NO_XML = re.compile("[\ufffe\uffff]")


def to_svg(drawn: Drawn) -> str:
    """As SVG, whose text stays text: a reader's own fonts show it."""
    with style.applied():
        document = _saved(drawn, "svg", metadata={"Date": None}).decode()
    return _NO_XML.sub("", document)


def to_png(drawn: Drawn) -> bytes:
    """As PNG, in this machine's fonts: what none of them has, such as Japanese, shows as boxes."""
    with style.applied(), style.installed_fonts(drawn.figure):
        return _saved(drawn, "png", dpi=_PNG_DPI, metadata={"Software": None})


def _saved(drawn: Drawn, form: str, **more: Any) -> bytes:
    out = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        drawn.figure.savefig(out, format=form, **more)
    return out.getvalue()
