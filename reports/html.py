"""The report as one HTML file, which needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from reports.svg import inline

if TYPE_CHECKING:
    from reports.page.parts import Page
    from reports.words import Words

MOST_ROWS = 3000  # of a table; more would take a browser more than a second or two to open or sort


def render(page: Page, words: Words) -> str:
    """A page as HTML.

    A table of more than `MOST_ROWS` is cut, which is said below it; the Markdown has them all.

    All text of the rows is escaped. Should that ever fail, the policy still lets no script run but our own, by its
    hash, and lets nothing be loaded from anywhere.
    """
    style, script = (_part(name) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    ours = {"style": Markup(style), "script": Markup(script)}  # noqa: S704
    template = _environment().get_template("page.html.j2")
    return template.render(page=page, words=words, policy=policy, most_rows=MOST_ROWS, **ours)


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("reports"), autoescape=True, undefined=StrictUndefined, lstrip_blocks=True
    )
    environment.filters["inline"] = lambda svg, name: Markup(inline(svg, name))  # noqa: S704 (of our figures)
    return environment


def _part(name: str) -> str:
    return resources.files("reports").joinpath("templates", name).read_text(encoding="utf-8")
