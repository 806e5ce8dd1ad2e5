"""`tokenroof report` as a person calls it, on rows that were really measured."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from results.formats import write
from results.read import read
from results.schema import NAMES

TOKENROOF = Path(sys.executable).with_name("tokenroof")
EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt2-mini.csv"


def _report(*arguments: str | Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [TOKENROOF, "report", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env=os.environ | environment,
        timeout=300,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The report of the example, and what the command said."""
    folder = tmp_path_factory.mktemp("english") / "report"
    return folder, _report(EXAMPLE, "-o", folder).stdout


def _is_whole(folder: Path, told: str, says: str) -> None:
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*.*")}
    assert {"index.html", "report.md", "figures/ceiling.svg", "figures/ceiling.png"} <= files
    assert told.split() == [str(folder / name) for name in ("index.html", "report.md")]
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text(encoding="utf-8")
        assert says in text
        for engine in read(EXAMPLE)["backend"].unique():
            assert engine in text


def test_a_report_is_a_page_a_text_and_figures(english: tuple[Path, str]) -> None:
    _is_whole(*english, says="decodes gpt2-mini bf16 at")


def test_a_report_in_japanese(tmp_path: Path, command: Callable[..., Any]) -> None:
    result = command("report", EXAMPLE, "-o", tmp_path / "report", "--lang", "ja")
    assert result.returncode == 0
    _is_whole(tmp_path / "report", result.stdout, says="でデコード")


def test_the_same_rows_give_the_same_bytes(
    tmp_path: Path, english: tuple[Path, str], command: Callable[..., Any]
) -> None:
    assert command("report", EXAMPLE, "-o", tmp_path).returncode == 0
    for path in english[0].rglob("*.*"):
        assert path.read_bytes() == (tmp_path / path.relative_to(english[0])).read_bytes(), path.name


def test_one_format_and_one_figure(tmp_path: Path, command: Callable[..., Any]) -> None:
    assert command("report", EXAMPLE, "-o", tmp_path / "report", "--format", "md").returncode == 0
    assert not (tmp_path / "report" / "index.html").exists()
    assert command("report", EXAMPLE, "--figure", "ceiling", "-o", tmp_path / "one.svg").returncode == 0
    assert ET.parse(tmp_path / "one.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
    assert command("report", EXAMPLE, "--figure", "ceiling", "-o", tmp_path / "one.png").returncode == 0
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_published_rates_lie_under_the_roofline(tmp_path: Path, command: Callable[..., Any]) -> None:
    rows = tmp_path / "rows.csv"
    write(read(EXAMPLE).assign(streamed_bytes_per_token=49_442_304, kv_read_bytes=442_368), rows)
    assert command("report", rows, "--figure", "roofline", "-o", tmp_path / "own.svg").returncode == 0
    assert (
        command("report", rows, "--figure", "roofline", "-o", tmp_path / "both.svg", "--with-published").returncode == 0
    )
    own, both = ((tmp_path / name).read_text(encoding="utf-8") for name in ("own.svg", "both.svg"))
    assert both.count("<use ") > own.count("<use ") + 100


def test_rows_that_make_no_rate_still_make_a_page(tmp_path: Path, command: Callable[..., Any]) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(",".join(NAMES) + "\n", encoding="utf-8")
    assert command("report", empty, "-o", tmp_path / "report").returncode == 1
    assert "There is no row" in (tmp_path / "report" / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("missing.csv",), "missing.csv: No such file or directory"),
        ((EXAMPLE, "--figure", "pie"), "--figure pie: is none of ceiling, roofline"),
        ((EXAMPLE, "--figure", "ceiling", "-o", "x.pdf"), "-o x.pdf: a figure is written as .svg or .png"),
        ((EXAMPLE, "--figure", "ceiling", "-o", "no/such.svg"), "no/such.svg: No such file or directory"),
        ((EXAMPLE, "-o", EXAMPLE), "name another folder with -o"),
        ((EXAMPLE, EXAMPLE), "hold the same rows twice; put them together first: tokenroof merge"),
        ((), "Missing argument"),
    ],
)
def test_mistakes_are_one_line(arguments: tuple[str | Path, ...], says: str, command: Callable[..., Any]) -> None:
    result = command("report", *arguments)
    assert result.returncode == 2
    error = result.stderr
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_library_that_is_missing_is_named(tmp_path: Path, library: str) -> None:
    hide = f"import sys\nsys.modules['{library}'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hide, encoding="utf-8")
    error = _report(EXAMPLE, code=2, PYTHONPATH=str(tmp_path)).stderr
    assert error == f"tokenroof: a report needs {library}: pip install {library}\n"
