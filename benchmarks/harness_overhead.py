"""What the harness itself does between two tokens; the aim is under 20 µs.

An engine that answers at once leaves only the harness's own work between two timestamps: the loop, the clock, and
keeping the ids.

    python benchmarks/harness_overhead.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from backends.base import LoadRequest
from backends.simulated import SimulatedSession, load
from harness import measure
from harness.workload import Case, token_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Ids

AIM_US = 20


class InstantSession(SimulatedSession):
    """Answers each step with the same array, without computing anything."""

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """Yield at once."""
        answer = np.zeros(tokens.shape[0], dtype=np.int32)
        for _ in range(tokens.shape[1]):
            yield answer


def main() -> None:
    """Print the median and the 99th percentile for some batches."""
    session = load(LoadRequest(Path("none"), None, engine_options={"ttft_s": 0.0}))
    session.__class__ = InstantSession
    print("batch  median µs  p99 µs")
    worst = 0.0
    for batch in (1, 4, 16):
        case = Case(0, 1, 10_001, batch)
        tokens = token_stream(case.context_tokens, batch, session.vocab_size, 1)
        session.allocate(case.context_tokens, batch)
        measure.repeat(session, case, tokens)
        session.reset(0)
        step_us = measure.repeat(session, case, tokens).step_ns / 1e3
        median, p99 = np.quantile(step_us, [0.5, 0.99])
        worst = max(worst, median)
        print(f"{batch:5}  {median:9.2f}  {p99:6.2f}")
    print("reached" if worst < AIM_US else "MISSED", f"(aim: {AIM_US} µs)")


if __name__ == "__main__":
    main()
