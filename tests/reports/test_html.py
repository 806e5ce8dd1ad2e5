"""The HTML, read by a parser of its own: what it loads, how it is ordered, what a hostile file can do to it."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from reports.html import MOST_ROWS, render
from reports.page.page import build
from reports.page.parts import Picture
from reports.svg import inline
from reports.words import words

SVG = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'width="10" height="10"><metadata>x</metadata><defs><path id="m1" d="M0 0"/><clipPath id="c"/></defs>'
    '<g id="figure_1" clip-path="url(#c)"><use xlink:href="#m1" style="clip-path: url(#c)"/>'
    '<text>id="m1" &lt;script&gt;</text></g></svg>'
)
PICTURES = [
    Picture("one", "First", "A caption", 'An "alt" text', SVG),
    Picture("two", "Second", "A caption", "Another", SVG),
    Picture("three", "Third", missing="run something"),
]


class Page(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {key: value or "" for key, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def attributes(self, name: str) -> list[str]:
        return [values[name] for _, values in self.tags if name in values]


def _page(gathered: Any, *rows: dict[str, Any], lang: str = "en") -> str:
    return render(build(gathered(*rows), PICTURES, words(lang), lang), words(lang))


@pytest.mark.parametrize("lang", ["en", "ja"])
def test_structure(gathered: Any, make_row: Any, lang: str) -> None:
    page = Page(_page(gathered, make_row(), make_row(status="failed", error="no"), lang=lang))
    assert ("html", {"lang": lang}) in page.tags
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    ids = page.attributes("id")
    assert len(ids) == len(set(ids))
    references = [h[1:] for h in page.attributes("href") if h.startswith("#")] + page.attributes("for")
    references += page.attributes("aria-labelledby") + [h[1:] for h in page.attributes("xlink:href")]
    assert set(references) <= set(ids)
    assert page.attributes("aria-label")[1:] == ['An "alt" text', "Another"]
    assert words(lang)["page.answer"] in page.text
    assert "run something" in page.text


def test_nothing_is_loaded_from_anywhere(gathered: Any, make_row: Any) -> None:
    source = "https://example.org/evil.js"
    text = _page(gathered, make_row(), make_row(provenance="published", source=source))
    page = Page(text)
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.tags}
    assert page.attributes("src") == []
    assert all(href.startswith("#") for href in page.attributes("href"))
    assert "url(http" not in text
    assert "default-src 'none'" in page.attributes("content")[0]


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></title><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "=HYPERLINK(1)",
    "x" * 10_000,
    "\u05e9\u05dc\u05d5\u05dd <b>",
    "' onmouseover='alert(1)",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_rows_stays_text(gathered: Any, make_row: Any, text: str) -> None:
    harmless = Page(_page(gathered, *_rows(make_row, "harmless")))
    page = Page(_page(gathered, *_rows(make_row, text)))
    counted = [tag for tag, _ in page.tags if tag not in {"details", "summary", "dt", "dd"}]
    assert sorted(counted) == sorted(tag for tag, _ in harmless.tags if tag not in {"details", "summary", "dt", "dd"})
    assert not [key for _, values in page.tags for key in values if key.startswith("on")]
    assert text in page.text


def _rows(make_row: Any, text: str) -> list[dict[str, Any]]:
    names = {"machine": text, "backend": text, "model": text, "weight_format": text, "cpu": text, "device_name": text}
    settings = {"engine_settings": {"asked": {"weights": text}, text: text}, "unavailable": {text: text}}
    return [
        make_row(**names, **settings),
        make_row(**names, status="failed", error=text),
        make_row(**names, comparable="no", comparable_why=text),
        make_row(**names, provenance="published", source=text),
    ]


def test_an_empty_file_makes_a_page_that_says_so(gathered: Any) -> None:
    found = gathered()
    page = Page(render(build(found, [], words("en"), "en"), words("en")))
    assert "There is no row" in page.text
    assert "table" not in {tag for tag, _ in page.tags}


def test_a_table_too_long_for_a_browser_is_cut_and_says_so(gathered: Any, make_row: Any) -> None:
    page = build(gathered(make_row()), [], words("en"), "en")
    assert page.results
    long = replace(page.results, rows=page.results.rows * (MOST_ROWS + 7))
    text = render(replace(page, results=long), words("en"))
    assert text.count('<td class="s">spark</td>') - render(page, words("en")).count('<td class="s">spark</td>') == (
        MOST_ROWS - 1
    )
    assert "7 more rows are in report.md" in text


def test_inlined_figures_share_no_id_and_keep_their_text() -> None:
    root = ET.fromstring(inline(SVG, "one"))  # noqa: S314
    ids = {element.get("id") for element in root.iter() if element.get("id")}
    assert ids == {"one-m1", "one-c", "one-figure_1"}
    text = inline(SVG, "one")
    assert 'xlink:href="#one-m1"' in text
    assert text.count("url(#one-c)") == 2
    assert 'id="m1" &lt;script&gt;' in text
    assert "metadata" not in text
