"""Seconds of the whole command `tokenroof predict --on all`, each time in a fresh process.

    python benchmarks/predict_speed.py [MODEL ...]

Wall time is what a user waits for; CPU time (user and system) hardly depends on what else runs. Medians of nine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

MODELS = ("llama-3.1-70b", "gemma-4-26b-a4b", "deepseek-v3")  # dense; two windows and experts; latent attention
ROUNDS = 9
TOKENROOF = Path(sys.executable).with_name("tokenroof")


def main() -> None:
    """Print a line a model."""
    for model in sys.argv[1:] or MODELS:
        command = [str(TOKENROOF), "predict", "-m", model, "-w", "q4_k_m", "-d", "32768", "--on", "all"]
        walls, cpus = zip(*(seconds(command) for _ in range(ROUNDS)), strict=True)
        print(f"{model}: {median(walls):.2f} s, of them {median(cpus):.2f} s CPU; best {min(walls):.2f} s")


def seconds(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process."""
    cpu_before, before = cpu_of_children(), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before, cpu_of_children() - cpu_before


def cpu_of_children() -> float:
    """User and system seconds of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
