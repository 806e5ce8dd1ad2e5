"""`tokenroof report` as a person calls it, on rows that were really measured."""

import os
import subprocess
import sys
from pathlib import Path
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


@pytest.mark.parametrize(("lang", "says"), [("en", "decodes gpt2-mini bf16 at"), ("ja", "でデコード")])
def test_a_report_is_a_page_a_text_and_figures(tmp_path: Path, lang: str, says: str) -> None:
    result = _report(EXAMPLE, "-o", tmp_path / "report", "--lang", lang)
    files = {path.relative_to(tmp_path / "report").as_posix() for path in (tmp_path / "report").rglob("*.*")}
    assert {"index.html", "report.md", "figures/ceiling.svg", "figures/ceiling.png"} <= files
    assert result.stdout.split() == [str(tmp_path / "report" / name) for name in ("index.html", "report.md")]
    for name in ("index.html", "report.md"):
        text = (tmp_path / "report" / name).read_text(encoding="utf-8")
        assert says in text
        for engine in read(EXAMPLE)["backend"].unique():
            assert engine in text


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        _report(EXAMPLE, "-o", tmp_path / name)
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes(), path.name


def test_one_format_and_one_figure(tmp_path: Path) -> None:
    _report(EXAMPLE, "-o", tmp_path / "report", "--format", "md")
    assert not (tmp_path / "report" / "index.html").exists()
    _report(EXAMPLE, "--figure", "ceiling", "-o", tmp_path / "one.svg")
    assert ET.parse(tmp_path / "one.svg").getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
    _report(EXAMPLE, "--figure", "ceiling", "-o", tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_published_rates_lie_under_the_roofline(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    write(read(EXAMPLE).assign(streamed_bytes_per_token=49_442_304, kv_read_bytes=442_368), rows)
    _report(rows, "--figure", "roofline", "-o", tmp_path / "own.svg")
    _report(rows, "--figure", "roofline", "-o", tmp_path / "both.svg", "--with-published")
    own, both = ((tmp_path / name).read_text(encoding="utf-8") for name in ("own.svg", "both.svg"))
    assert both.count("<use ") > own.count("<use ") + 100


def test_rows_that_make_no_rate_still_make_a_page(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(",".join(NAMES) + "\n", encoding="utf-8")
    _report(empty, "-o", tmp_path / "report", code=1)
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
def test_mistakes_are_one_line(arguments: tuple[str | Path, ...], says: str) -> None:
    error = _report(*arguments, code=2).stderr
    assert says in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("library", ["matplotlib", "jinja2"])
def test_a_library_that_is_missing_is_named(tmp_path: Path, library: str) -> None:
    hide = f"import sys\nsys.modules['{library}'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(hide, encoding="utf-8")
    error = _report(EXAMPLE, code=2, PYTHONPATH=str(tmp_path)).stderr
    assert error == f"tokenroof: a report needs {library}: pip install {library}\n"
