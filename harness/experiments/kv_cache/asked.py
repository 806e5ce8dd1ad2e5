"""What every experiment is asked with."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from backends.registry import BACKENDS
from harness.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from backends.base import EngineInfo
    from harness.options import Options

_MOST_STEPS = 32
_QUANTISED = ("q8_0", "q4_0", "8bit", "4bit")


class CannotAnswerError(UserError):
    """The question of an experiment cannot be answered with these engines or this model."""


@dataclass(frozen=True)
class Asked:
    """One request.

    Attributes:
        options: a run with the engines by name and everything that is no experiment's own to choose.
        engines: what is installed of them.
        n_prompt: tokens of the prompt.
        n_gen: tokens to generate after it.
        prefixes: lengths of the prefix that is reused; None: parts of the text.
        notes: what an experiment leaves out, and why; they add to it.
    """

    options: Options
    engines: Mapping[str, EngineInfo]
    n_prompt: int
    n_gen: int
    prefixes: tuple[int, ...] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def text_tokens(self) -> int:
        """Tokens of the whole text."""
        return self.n_prompt + self.n_gen

    @property
    def n_steps(self) -> int:
        """As many as a rate at one depth is measured over."""
        return max(1, min(_MOST_STEPS, self.text_tokens // 8))

    @property
    def depths(self) -> tuple[int, ...]:
        """From an almost empty cache to one that the text fills."""
        deepest = self.text_tokens - self.n_steps
        return tuple(sorted({deepest // 8, deepest // 2, deepest}))

    def run(self, **own: Any) -> Options:
        """The run with what an experiment chooses itself."""
        return replace(self.options, **own)

    def answered_by(self, able: Collection[str], name: str, why_not: str) -> None:
        """Note which engines an experiment leaves out.

        Args:
            able: those that it runs in.
            name: the experiment's.
            why_not: of each of the others.

        Raises:
            CannotAnswerError: all are left out.
        """
        left_out = [
            f"--experiment {name}: {engine} left out: {why_not}" for engine in self.engines if engine not in able
        ]
        if not able:
            raise CannotAnswerError("; ".join(left_out))
        self.notes.extend(left_out)

    def kv_formats(self, backend: str) -> tuple[str, ...]:
        """The engine's usual format, and those of about eight and four bits."""
        usual = (name for name in BACKENDS[backend].kv_formats if name in _QUANTISED)
        return ("auto", *usual, *self.engines[backend].kv_formats)

    def with_kv_format(self, backend: str, kv_format: str, **own: Any) -> Options:
        """The run in one engine with keys and values in one format."""
        return self.run(backends=(backend,), kv_k_format=(kv_format,), kv_v_format=(kv_format,), **own)
