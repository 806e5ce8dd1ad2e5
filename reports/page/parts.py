"""The parts that a page is made of, before anything is HTML or Markdown: plain text throughout."""

from __future__ import annotations

from dataclasses import dataclass, replace

from reports.numbers import EMPTY


@dataclass(frozen=True)
class Column:
    """A heading, and whether its cells begin with a number, by which they then sort and align."""

    heading: str
    number: bool = False


@dataclass(frozen=True)
class Table:
    """Cells are texts; "-" is an empty one."""

    id: str  # unique in the page
    caption: str
    columns: tuple[Column, ...]
    rows: list[tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def without_empty(self) -> Table:
        """The same without the columns in which no row has anything to say."""
        kept = [i for i in range(len(self.columns)) if any(row[i] != EMPTY for row in self.rows)]
        rows = [tuple(row[i] for i in kept) for row in self.rows]
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=rows)


@dataclass(frozen=True)
class Fact:
    """A label and what it says."""

    label: str
    text: str


@dataclass(frozen=True)
class Machine:
    """All that is known of one machine, and how to repeat what it measured."""

    id: str  # unique in the page
    name: str
    hardware: list[Fact]
    engines: Table
    conditions: list[Fact]
    warnings: list[str]
    time: list[str]
    commands: list[str]
    imported: list[str]  # where rows come from that no command makes again


@dataclass(frozen=True)
class Picture:
    """A figure, or the reason why there is none."""

    name: str  # of its file, and unique in the page
    title: str
    caption: str = ""
    alt: str = ""
    svg: str = ""
    missing: str = ""


@dataclass(frozen=True)
class Page:
    """A report, section by section in the order in which it is read."""

    lang: str
    title: str
    about: str  # how many rows of how many machines, and from when
    answer: list[str]
    pictures: list[Picture]
    results: Table | None
    quality: Table | None
    servers: Table | None
    time: Table | None
    doubts: Table | None
    published: Table | None
    machines: list[Machine]
    method: list[Fact]
