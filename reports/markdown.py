"""The report as Markdown, to paste into an issue or a note."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from results.safe_text import one_line

if TYPE_CHECKING:
    from reports.page.parts import Fact, Machine, Page, Picture, Table
    from reports.words import Words

# What Markdown would take for markup; a line's first sign is another matter, but no line of ours begins with a cell.
_SIGNS = re.compile(r"([\\`*\[\]|~]|(?<!\w)_|_(?!\w))")


def render(page: Page, words: Words) -> str:
    """A page as GitHub's Markdown; its pictures are files beside it, `figures/NAME.svg`."""
    blocks = [f"# {_text(page.title)}", _text(page.about), f"## {words['page.answer']}"]
    blocks.append("\n".join(f"- {_text(sentence)}" for sentence in page.answer))
    if page.pictures:
        blocks += [f"## {words['page.figures']}", *(_picture(picture) for picture in page.pictures)]
    for key in ("results", "quality", "servers", "time", "doubts", "published"):
        table: Table | None = getattr(page, key)
        if table:
            blocks += [f"## {words[f'page.{key}']}", *_table(table)]
    if page.machines:
        blocks.append(f"## {words['page.machines']}")
        blocks += [block for machine in page.machines for block in _machine(machine, words)]
    blocks += [f"## {words['page.method']}", _facts(page.method)]
    return "\n\n".join(blocks) + "\n"


def _picture(picture: Picture) -> str:
    if picture.missing:
        return f"**{_text(picture.title)}** – {_text(picture.missing)}"
    return f"![{_text(picture.alt)}](figures/{picture.name}.svg)\n\n*{_text(picture.caption)}*"


def _table(table: Table) -> list[str]:
    headings = [_text(column.heading) for column in table.columns]
    rule = ["---:" if column.number else "---" for column in table.columns]
    rows = [[_text(cell) for cell in row] for row in table.rows]
    return ["\n".join(f"| {' | '.join(row)} |" for row in (headings, rule, *rows)), *map(_text, table.notes)]


def _machine(machine: Machine, words: Words) -> list[str]:
    blocks = [f"### {_text(machine.name)}"]
    if machine.hardware:
        blocks += [f"#### {words['machine.hardware']}", _facts(machine.hardware)]
    blocks += [f"#### {words['machine.engines']}", *_table(machine.engines)]
    if machine.conditions:
        blocks += [f"#### {words['machine.conditions']}", _facts(machine.conditions)]
    for key in ("warnings", "time"):
        sentences: list[str] = getattr(machine, key)
        if sentences:
            blocks += [f"#### {words[f'machine.{key}']}", "\n".join(f"- {_text(text)}" for text in sentences)]
    if machine.commands or machine.imported:
        blocks += [f"#### {words['machine.repeat']}", *map(_code, machine.commands), *map(_text, machine.imported)]
    return blocks


def _facts(facts: list[Fact]) -> str:
    return "\n".join(f"- **{_text(fact.label)}**: {_text(fact.text)}" for fact in facts)


def _code(text: str) -> str:
    """A block whose fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def _text(text: str) -> str:
    """Text on one line of which Markdown takes nothing for markup, nor HTML, nor GitHub for somebody's name."""
    return _SIGNS.sub(r"\\\1", html.escape(one_line(text), quote=False)).replace("@", "&#64;")
