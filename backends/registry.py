"""Which backends exist, told without importing any engine."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from types import ModuleType


Kind = Literal["hf", "gguf"]
"""The kind of file an engine reads: a Hugging Face directory, or a .gguf file."""


@dataclass(frozen=True)
class Backend:
    """One engine: its name on the command line, its file, and what it needs."""

    name: str
    module: str  # defines describe() and load(); see backends.base
    requires: tuple[str, ...]  # importable names that must be installed
    extra: str  # of the tokenroof distribution: pip install "tokenroof[extra]"
    artifact: Kind
    places_layers: bool = False  # can put part of the layers on the GPU (-ngl)
    quantises_at_load: bool = False  # in memory; else its `quantise` module writes a copy
    kv_formats: tuple[str, ...] = ()  # that every version of it has, beside the weights' own (-ctk, -ctv)
    needless: tuple[str, ...] = ()  # what its libraries import wherever it is installed, and it does without
    # Engine options to try once more with when the process dies without a word, and what they avoid.
    after_crash: dict[str, Any] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether everything it needs can be found; nothing is imported."""
        return all(importlib.util.find_spec(name) is not None for name in self.requires)

    def import_module(self) -> ModuleType:
        """The backend's own module. Cheap: the engine is imported only by its describe() and load()."""
        return importlib.import_module(self.module)


BACKENDS = {
    backend.name: backend
    for backend in (
        Backend("torch", "backends.torch", ("torch", "transformers"), "torch", "hf", quantises_at_load=True),
        Backend(
            "mlx",
            "backends.mlx",
            ("mlx", "mlx_lm"),
            "mlx",
            "hf",
            kv_formats=("8bit", "4bit"),
            # By transformers, of which mlx-lm takes tokenizers: more than a second of each start, and 190 MB.
            needless=("torch",),
        ),
        Backend(
            "llama.cpp",
            "backends.llama_cpp",
            ("llama_cpp", "gguf"),
            "llama",
            "gguf",
            places_layers=True,
            kv_formats=("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),
            # Repacked (AMX) weight buffers of llama.cpp crash on some CPUs at two or more sequences.
            after_crash={"use_extra_bufts": False},
        ),
        Backend("simulated", "backends.simulated", (), "", "hf", after_crash={"use_extra_bufts": False}),
    )
}

ENGINES = tuple(name for name in BACKENDS if name != "simulated")
"""The real engines, in the order in which they run. The simulated one proves the timing, and runs only by name."""
