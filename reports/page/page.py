"""The whole page, from rows and figures to plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reports.page.answer import answer
from reports.page.doubts import doubts_table, find_doubts
from reports.page.hardware import period
from reports.page.lines import results_table
from reports.page.machines import machines
from reports.page.parts import Fact, Page
from reports.page.published import published_table
from reports.page.quality import quality_table
from reports.page.servers import servers_table
from reports.page.time_table import time_table
from reports.summary import summarise
from results.verify import MARGIN

if TYPE_CHECKING:
    from reports.gather import Gathered
    from reports.page.parts import Picture
    from reports.words import Words


def build(gathered: Gathered, pictures: list[Picture], words: Words, lang: str) -> Page:
    """Everything that a report says.

    Args:
        gathered: the rows.
        pictures: in the order in which they are shown.
        words: the language's.
        lang: its code, for the page's `lang`.
    """
    lines = summarise(gathered.own)
    doubts = find_doubts(gathered)
    return Page(
        lang=lang,
        title=words["page.title"],
        about=_about(gathered, words),
        answer=answer(gathered, lines, words),
        pictures=pictures,
        results=results_table(lines, words),
        quality=quality_table(lines, words),
        servers=servers_table(lines, words),
        time=time_table(lines, words),
        doubts=doubts_table(doubts, words),
        published=published_table(gathered.published, words),
        machines=machines(gathered.own, doubts, words),
        method=_method(words),
    )


def _about(gathered: Gathered, words: Words) -> str:
    tables = (gathered.own, gathered.published, gathered.incomparable, gathered.faulty)
    days = period(gathered.own["started_at"].dropna(), words)
    told = {"rows": sum(map(len, tables)), "machines": gathered.own["machine"].nunique()}
    return words["page.about"].format(**told, period=days) if days else words["page.about_undated"].format(**told)


def _method(words: Words) -> list[Fact]:
    """Term by term, in the order of the words."""
    terms = [key.removesuffix(".term") for key in words if key.startswith("method.") and key.endswith(".term")]
    return [Fact(words[f"{key}.term"], words[f"{key}.text"].format(margin=MARGIN)) for key in terms]
