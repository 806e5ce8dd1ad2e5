"""The GPU check's dry path: every step of it, really run on the CPU with a tiny model."""

import subprocess
import sys
from pathlib import Path

from backends.conformance import checks

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gpu_check.py"


def test_the_dry_path_runs_every_step():
    sizes = ["--depths", "0", "32", "--prompt", "8", "--gen", "6", "--read-mib", "8"]
    finished = subprocess.run(
        [sys.executable, SCRIPT, "--device", "cpu", "--model", "tiny", *sizes],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert f"{len(checks())} of {len(checks())} clauses hold on cpu" in finished.stdout
    lines = [line.split()[:2] for line in finished.stdout.splitlines()]
    for mode in ("compiled", "generate", "eager"):
        assert [mode, "0"] in lines
        assert [mode, "32"] in lines
