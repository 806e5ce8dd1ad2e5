import re
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

TOKENROOF = Path(sys.executable).with_name("tokenroof")


def tokenroof(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([TOKENROOF, *arguments], capture_output=True, text=True, check=False, cwd=cwd, timeout=300)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "-ngl99"], r"no such option: -ngl99 \(write -ngl 99\)"),
        (["run", "-n128"], r"no such option: -n128 \(write -n 128\)"),
        (["run", "-fa=on"], r"no such option: -fa=on \(write -fa on\)"),
        (["run", "-mmp"], r"no such option: -mmp"),
        (["run", "--nonsense"], r"No such option: --nonsense"),
        (["run", "-p", "many"], r"-p many: 'many' is not a number or a range"),
        (["run", "-p", "0", "-n", "0"], r"nothing to measure"),
        (["run", "-B", "0"], r"-B 0: 0 is too small"),
        (["run", "-w", "q9"], r"-w q9: unknown format 'q9'"),
        (["run", "-fa", "maybe"], r"-fa maybe"),
        (["run", "-ctk", "q3"], r"-ctk q3"),
        (["run", "-r", "0"], r"-r"),
        (["run", "-m", "llama-3.2-1bb"], r"llama-3\.2-1b"),
        (["run", "-m", "./no/such/folder"], r"no/such/folder"),
        (["run", "--backend", "lama.cpp"], r"did you mean llama\.cpp"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, command: Callable[..., Any]
) -> None:
    result = command(*arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("tokenroof: ")
    assert re.search(message, result.stderr)
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_a_mistake_ends_the_process_with_exit_code_2(tmp_path: Path) -> None:
    result = tokenroof("nonsense", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert re.fullmatch(r"tokenroof: .*nonsense.*\n", result.stderr)


def test_help_lists_the_commands() -> None:
    result = tokenroof("--help")
    assert result.returncode == 0
    assert {"run", "models"} <= set(result.stdout.split())
    assert "..." not in result.stdout.partition("Commands:")[2], "a line says all that it has to say"
    assert tokenroof().stdout == result.stdout


def test_help_imports_no_engine_and_nothing_heavy() -> None:
    code = "import sys; from harness.cli.main import main; sys.argv = ['tokenroof', 'run', '--help']; main()"
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    imported = {line.rsplit("|", 1)[1].strip().split(".")[0] for line in result.stderr.splitlines() if "|" in line}
    assert not imported & {"torch", "transformers", "mlx", "mlx_lm", "llama_cpp", "gguf", "pandas", "pyarrow", "psutil"}
    for flag in ["-m", "-p", "-n", "-d", "-r", "-ngl", "-t", "-fa", "-ctk", "-ctv", "-b", "-ub", "-B", "-w", "-o"]:
        assert re.search(rf"(?m)^\s+{flag},", result.stdout), f"{flag} is not in the help"


def test_the_version_is_the_installed_ones() -> None:
    result = tokenroof("--version")
    assert result.returncode == 0
    assert result.stdout.split() == ["tokenroof", metadata.version("tokenroof")]
