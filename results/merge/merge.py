"""Merging result files in bounded memory: what must be asked of all rows is gathered first, then they are written."""

from __future__ import annotations

import shutil
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from results import lines
from results.amounts import counted
from results.arrow import aligned, in_order
from results.errors import ResultsError
from results.formats import format_of, replacing
from results.merge.ahead import ahead
from results.merge.gather import Rows
from results.merge.judge import judge, named
from results.merge.reading import Source
from results.migrate import migration
from results.schema import NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from results.merge.judge import Judgement


@dataclass(frozen=True)
class Merged:
    """What a merge did.

    Attributes:
        left_out: what is wrong with each file that was left out, with its name.
        conflicts: why rows were marked, with the files that disagree.
        renamed: the labels of the machines that had one label, by that label.
        n_rows: rows read.
        n_kept: rows written; the rest were exact duplicates.
        n_marked: rows written with `comparable=no`.
        verdicts: rows written with each verdict; None counts those without.
    """

    left_out: list[str]
    conflicts: list[str]
    renamed: dict[str, list[str]]
    n_rows: int
    n_kept: int
    n_marked: int
    verdicts: Counter[str | None]


def merge(paths: Sequence[Path], output: Path, *, strict: bool = False, suffix: bool = False) -> Merged:
    """Write the rows of several result files as one file, in the order of the files, each row once.

    Memory holds some numbers for each row, what is distinct of machines, models, cases and probes, and the rows of a
    few files; all other cells wait on the output's disk.

    Args:
        paths: the files; `output` may be one of them.
        output: the new file, `.csv`, `.jsonl` or `.parquet`.
        strict: refuse a broken file, and rows that call different things the same, in place of leaving out and marking.
        suffix: give each machine a label of its own where one label is several machines'.

    Raises:
        ResultsError: nothing can be written, the files are of several schema versions, no file is sound, or, where
            `strict`, not everything is in order. The output is then as it was.
    """
    format_of(output)
    with lines.locked(output), _scratch(output) as folder:
        own = [
            number for number, path in enumerate(paths) if path.exists() and output.exists() and path.samefile(output)
        ]
        if output.exists() and not own:
            raise ResultsError(f"{output}: is there already; name another file, or name it among those to merge too")
        source, rows = Source(paths), Rows(folder)
        for table, file in source.tables():
            rows.add(table, file)
        _refuse(source, own, strict=strict)
        judgement = judge(rows, paths, suffix=suffix)
        if strict and judgement.conflicts:
            raise ResultsError(f"{counted(len(judgement.conflicts), 'conflict')}, the first: {judgement.conflicts[0]}")
        return _write(output, rows, judgement, source)


@contextmanager
def _scratch(output: Path) -> Iterator[Path]:
    """A folder beside the output, until the block ends; one that a killed merge left is taken up, so none piles up."""
    folder = output.with_name(f".{output.name}.merging")
    folder.mkdir(exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse(source: Source, own: list[int], *, strict: bool) -> None:
    """Stop where files are broken that must not be, or are of several versions."""
    lost = [source.broken[number] for number in own if number in source.broken]
    if lost:
        raise ResultsError(f"{lost[0]}; the merge would lose the file, so mend it or write elsewhere")
    if source.broken and (strict or not source.versions):
        raise ResultsError(next(iter(source.broken.values())))
    if len(set(source.versions.values())) > 1:
        oldest = min(source.versions.values())
        old = [source.paths[number] for number, version in source.versions.items() if version == oldest]
        raise ResultsError(
            f"{named(old)}: of schema {oldest}, others are of a newer one; migrate first: {migration(old)}"
        )


def _write(output: Path, rows: Rows, judgement: Judgement, source: Source) -> Merged:
    n_kept = n_marked = 0
    verdicts: Counter[str | None] = Counter()
    names = in_order([*NAMES, *rows.extra])
    with replacing(output, names) as write:
        for waiting in ahead(lambda number: judgement.apply(rows.table(number), number), range(len(rows))):
            judged = waiting.result()
            write(aligned(judged, names))
            n_kept += len(judged)
            n_marked += len(judged) - judged["comparable"].null_count
            verdicts.update({one["values"]: one["counts"] for one in judged["verified"].value_counts().to_pylist()})
    broken = list(source.broken.values())
    return Merged(broken, judgement.conflicts, judgement.renamed, source.n_rows, n_kept, n_marked, verdicts)
