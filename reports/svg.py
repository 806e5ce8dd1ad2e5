"""A figure's SVG as a part of an HTML page."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"url\(#([^)]+)\)")

ET.register_namespace("", _SVG)
ET.register_namespace("xlink", _XLINK)


def inline(svg: str, prefix: str) -> str:
    """An SVG document as an element to put into HTML, beside other figures.

    An id may be in a page once only, so each gets the prefix; the metadata goes.

    Args:
        svg: a whole document, as `reports.figures.to_svg` writes it.
        prefix: unique to the figure.
    """
    root = ET.fromstring(svg)  # noqa: S314 (our own figure's)
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    for element in root.iter():
        for key, value in element.attrib.items():
            if key == "id":
                element.set(key, f"{prefix}-{value}")
            elif key in {"href", f"{{{_XLINK}}}href"} and value.startswith("#"):
                element.set(key, f"#{prefix}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, _REFERENCE.sub(rf"url(#{prefix}-\1)", value))
    return ET.tostring(root, encoding="unicode")
