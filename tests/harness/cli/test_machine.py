"""`tokenroof machine` on the machine that runs the tests, with its real engines and with one that is broken."""

import json
import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil
import pytest

TOKENROOF = Path(sys.executable).with_name("tokenroof")


def _machine(*arguments: str, **environment: str) -> str:
    result = subprocess.run(
        [TOKENROOF, "machine", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_the_machine_is_described_as_its_system_does() -> None:
    report = json.loads(_machine("--json"))
    assert report["os"].split() == [platform.system(), platform.release(), platform.machine()]
    assert report["host"]["memory_bytes"] == psutil.virtual_memory().total
    assert platform.node() not in json.dumps(report)
    engines = {engine["name"]: engine for engine in report["engines"]}
    assert list(engines) == ["torch", "mlx", "llama.cpp"]
    for name, distribution in {"torch": "torch", "mlx": "mlx", "llama.cpp": "llama-cpp-python"}.items():
        if engines[name]["installed"]:
            assert engines[name]["version"].split("+")[0] == metadata.version(distribution).split("+")[0]
    for memory in (report["host"], *report["accelerators"]):
        assert memory["bandwidth_source"]


def test_a_broken_engine_is_told_and_mended(tmp_path: Path) -> None:
    pytest.importorskip("mlx")
    (tmp_path / "mlx").mkdir()
    (tmp_path / "mlx" / "__init__.py").write_text("raise ImportError('libmlx.so is not there')\n")
    text = _machine(PYTHONPATH=str(tmp_path))
    assert "mlx           cannot be loaded: " in text
    assert "libmlx.so is not there" in text
    assert "mend:  pip install " in text
    assert "\ntorch         " in text
    assert "\nllama.cpp     " in text
