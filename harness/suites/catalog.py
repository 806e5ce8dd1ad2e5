"""What each suite runs. Rows name the suite with its version, so any change here needs a new one.

- quick: the anchor case of a run without flags, and the same model as most people hold it, in four bits. The smallest
  model of `standard`, so that a machine with two cores is done within minutes and meets every `standard` run.
- standard: what people really use, from a model that fits everywhere to one that is larger than most cards, with an
  empty, a filled and a long context.
- full: the same, and what else is asked of a machine: long prompts, several users at once, eight bits, a quantised KV
  cache.

Models are ordered by size, so that what a small machine can do comes first, and one model's formats follow each other,
since they are made from the same files.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from harness.errors import UserError
from harness.workload import Case, grid

_PROMPT, _GEN = (512,), (128,)  # those of a run without flags
_EMPTY = grid((0,), _PROMPT, _GEN, (1,))
_DEPTHS = grid((0, 8192, 32768), _PROMPT, _GEN, (1,))
_PREFILLS = grid((0,), (128, 2048, 8192), (0,), (1,))
_USERS = grid((0,), _PROMPT, _GEN, (4, 16))


@dataclass(frozen=True)
class Entry:
    """One model in one format, on every engine of the machine.

    Attributes:
        model: a preset.
        weights: as -w names it; "4bit" is each engine's usual.
        cases: in order.
        kv_format: of the cache's keys and values; "8bit" is each engine's usual.
    """

    model: str
    weights: str
    cases: tuple[Case, ...]
    kv_format: str = "auto"


@dataclass(frozen=True)
class Suite:
    """A list of entries that never changes under one version.

    Attributes:
        name: on the command line.
        version: goes up with any change of what is run.
        entries: in order.
        launches: of each engine, where the user gives none.
        repetitions: of each case, where the user gives none.
    """

    name: str
    version: int
    entries: tuple[Entry, ...]
    launches: int
    repetitions: int

    @property
    def label(self) -> str:
        """As the rows have it: standard-1."""
        return f"{self.name}-{self.version}"

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all that is run, as people read it: what a `Case` may come to hold beside that changes nothing."""
        entries = [[each.model, each.weights, each.kv_format, *map(str, each.cases)] for each in self.entries]
        return hashlib.sha256(json.dumps([entries, self.launches, self.repetitions]).encode()).hexdigest()


_STANDARD = (
    Entry("llama-3.2-1b", "bf16", _DEPTHS),
    Entry("llama-3.1-8b", "bf16", _DEPTHS),
    Entry("llama-3.1-8b", "4bit", _DEPTHS),
    Entry("qwen3-30b-a3b", "4bit", _DEPTHS),
    Entry("llama-3.1-70b", "4bit", _DEPTHS),
)
_FULL = (
    Entry("llama-3.2-1b", "bf16", (*_DEPTHS, *_PREFILLS, *_USERS)),
    Entry("llama-3.1-8b", "bf16", (*_DEPTHS, *_PREFILLS, *_USERS)),
    Entry("llama-3.1-8b", "8bit", _DEPTHS),
    Entry("llama-3.1-8b", "4bit", (*_DEPTHS, *_PREFILLS, *_USERS)),
    Entry("llama-3.1-8b", "4bit", _DEPTHS, kv_format="8bit"),
    Entry("qwen3-30b-a3b", "4bit", (*_DEPTHS, *_PREFILLS, *_USERS)),
    Entry("llama-3.1-70b", "4bit", _DEPTHS),
)

# Loading a large model costs more than measuring it, so one launch each.
SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "quick",
            1,
            (Entry("llama-3.2-1b", "bf16", _EMPTY), Entry("llama-3.2-1b", "4bit", _EMPTY)),
            launches=1,
            repetitions=3,
        ),
        Suite("standard", 1, _STANDARD, launches=1, repetitions=5),
        Suite("full", 1, _FULL, launches=1, repetitions=5),
    )
}


def named(name: str) -> Suite:
    """The suite of this name.

    Raises:
        UserError: there is none.
    """
    if name not in SUITES:
        raise UserError(f"--suite {name}: is none of {', '.join(SUITES)}")
    return SUITES[name]
