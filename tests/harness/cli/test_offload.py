"""`tokenroof offload` as a user types it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from results.read import read

pytestmark = pytest.mark.usefixtures("known_bandwidth")
TOKENROOF = Path(sys.executable).with_name("tokenroof")


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [TOKENROOF, "offload", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=cwd)


def test_a_sweep_over_a_tier_on_loopback(tier: str, tmp_path: Path) -> None:
    small = ["-m", "gpt2-mini", "-p", "8", "-n", "8", "-r", "1", "--launches", "1", "-t", "1"]
    result = _run(*small, "--rpc", tier, "-o", "rows.csv", "--machine", "here", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "-ngl 4 of 4 fits" in result.stderr
    for said in ("Fastest at -ngl", "By the two ends", "Predicted from", "At -ngl 4", "rows in rows.csv"):
        assert said in result.stdout
    rows = read(tmp_path / "rows.csv")
    assert {0, 1, 4} <= set(rows["gpu_layers_effective"])
    assert set(rows["machine"]) == {"here"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-m", "gpt2-mini", "--rpc", "127.0.0.1:1"], "no tier answers at 127.0.0.1:1"),
        (["-m", "gpt2-mini", "--rpc", "here"], "HOST:PORT"),
        (["-m", "gpt2-mini", "--device", "cpu"], "--device cpu leaves no memory to offload to"),
        (["-m", "gpt2-mini", "-w", "q9"], "-w q9: unknown format 'q9'"),
        (["-m", "gpt2-minni"], "gpt2-mini"),
        ([], "-m"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], said: str, tmp_path: Path, command: Callable[..., Any]) -> None:
    result = command("offload", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert not list(tmp_path.iterdir())
