"""`tokenroof show` as a person calls it."""

import os
import subprocess
import sys
from pathlib import Path

from results.schema import NAMES

TOKENROOF = Path(sys.executable).with_name("tokenroof")
EXAMPLE = Path(__file__).parents[3] / "examples" / "gpt2-mini.csv"


def _show(*arguments: str | Path, code: int = 0, **environment: str) -> str:
    result = subprocess.run(
        [TOKENROOF, "show", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        env=os.environ | environment,
        timeout=300,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout


def test_bars_for_every_engine() -> None:
    lines = _show(EXAMPLE, PYTHONIOENCODING="utf-8", COLUMNS="70").splitlines()
    assert all(len(line) <= 70 for line in lines[1:4])
    assert {line.split()[0] for line in lines[1:4]} == {"torch", "mlx", "llama.cpp"}
    assert all("█" in line for line in lines[1:4])


def test_a_terminal_without_blocks_gets_ascii() -> None:
    text = _show(EXAMPLE, PYTHONIOENCODING="ascii")
    text.encode("ascii")
    assert "####" in text


def test_a_file_without_a_rate_says_so(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text(",".join(NAMES) + "\n", encoding="utf-8")
    assert _show(empty, code=1).startswith("There is no row in what was given")
    assert "行がない" in _show(empty, "--lang", "ja", code=1, PYTHONIOENCODING="utf-8")
