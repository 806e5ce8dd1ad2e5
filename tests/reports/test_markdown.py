"""The Markdown: the same as the page says, and nothing that a renderer would take for more."""

import re
from typing import Any

from reports.markdown import render
from reports.page.page import build
from reports.page.parts import Picture
from reports.words import words


def _markdown(gathered: Any, *rows: dict[str, Any], lang: str = "en") -> str:
    picture = Picture("ceiling", "Decode", "A caption", "An [alt]", "<svg/>")
    return render(build(gathered(*rows), [picture], words(lang), lang), words(lang))


def test_it_says_what_the_page_says(gathered: Any, make_row: Any) -> None:
    text = _markdown(gathered, make_row(), make_row(status="failed", error="out of memory"))
    assert text.startswith("# How close to the ceiling\n")
    assert "- spark decodes llama-3.2-1b bf16 at 40.00 tok/s with torch, 80 % of" in text
    assert "![An \\[alt\\]](figures/ceiling.svg)" in text
    assert re.search(r"^\| spark \| torch \| llama-3.2-1b \| bf16 \| p512 n128 d0 \| 500.0 \|", text, re.MULTILINE)
    assert re.search(r"^\| failed \| .* out of memory \|$", text, re.MULTILINE)
    assert "```\ntokenroof run -m llama-3.2-1b" in text


def test_tables_are_rectangular_whatever_cells_hold(gathered: Any, make_row: Any) -> None:
    text = _markdown(gathered, make_row(model="a|b", machine="c\\|d"), make_row(status="failed", error="| --- |"))
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert len(blocks) >= 3
    for block in blocks:
        assert len({len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)) for line in block.splitlines()}) == 1


def test_a_line_break_in_a_setting_makes_no_line_of_the_page(gathered: Any, make_row: Any) -> None:
    hostile = "x\n\n# owned\n\x1b[31m"
    settings = {"asked": {"weights": "bf16", "mode": hostile}, "kernel": hostile}
    text = _markdown(gathered, make_row(engine_settings=settings, unavailable={"temp_c_max": hostile}))
    assert "# owned" in text
    assert "\n# owned" not in text
    assert "\x1b" not in text


def test_markup_in_rows_is_text(gathered: Any, make_row: Any) -> None:
    hostile = "<img src=x> ![p](http://x) [a](javascript:b) `c` *d* _e_ @f"
    text = _markdown(gathered, make_row(model=hostile, machine="a_b"))
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<img" not in outside
    assert "@f" not in outside
    assert not re.search(r"(?<!\\)\]\((?!figures/)", outside)
    assert not re.search(r"(?<!\\)`c", outside)
    assert "| a_b |" in outside  # an underscore within a word is no markup


def test_a_command_with_backticks_stays_in_its_block(gathered: Any, make_row: Any) -> None:
    text = _markdown(gathered, make_row(model="a```b"))
    assert re.search(r"^````\n.*a```b.*\n````$", text, re.MULTILINE)


def test_an_empty_file_says_so(gathered: Any) -> None:
    assert "There is no row" in _markdown(gathered)
    assert "行がない" in _markdown(gathered, lang="ja")
