"""Weight formats by name: what a word of -w means to each engine, and why one has it not."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from backends.registry import BACKENDS
from harness.errors import UserError
from harness.roofline.formats import FORMATS, unknown_format
from harness.roofline.mixtures import MIXTURES, NEEDS_IMPORTANCE
from harness.roofline.nominal import ALIASES, PLAIN, WEIGHT_FORMATS, is_quantised

if TYPE_CHECKING:
    from backends.base import EngineInfo
    from harness.roofline.architecture import Architecture

_USUAL_IN_GGUF = {"8bit": "q8_0", "4bit": "q4_k_m"}
_USUAL_IN_TORCH = {"8bit": "int8", "4bit": "int4"}
_WITH_TORCHAO = '; torchao would add int8 and int4 (pip install "tokenroof[torchao]")'
_TORCHAO = ("int8", "int4", "fp8")
_CONVOLUTIONS = frozenset({"gpt2"})  # model types whose layers are so in transformers
_MICROSCALED = ("mxfp4", "nvfp4")  # names of llama.cpp and of MLX, which mean other things by them


def check_known(asked: tuple[str, ...]) -> None:
    """Every word must be a weight format of some engine.

    Raises:
        UserError: one is none; the message has the nearest names.
    """
    for word in asked:
        if word.lower() not in WEIGHT_FORMATS:
            raise UserError(f"-w {word}: {unknown_format(word, WEIGHT_FORMATS)}")


def own_name(asked: str, backend: str) -> str:
    """An engine's own name for what is asked: "4bit" is llama.cpp's "q4_k_m", torch's "int4" and MLX's "4bit"."""
    name = asked.lower()
    if BACKENDS[backend].quantises_at_load:
        return _USUAL_IN_TORCH.get(name, name)
    if BACKENDS[backend].artifact != "gguf":
        return name
    return _USUAL_IN_GGUF.get(name) or ALIASES.get(name, name)


def roofline_name(weight_format: str, backend: str) -> str:
    """The name under which `roofline.nominal` knows an engine's format."""
    return f"{weight_format}-mlx" if backend == "mlx" and weight_format in _MICROSCALED else weight_format


def made_by(engine: EngineInfo, backend: str) -> tuple[str, ...]:
    """The quantised formats that an engine makes and whose sizes are known before."""
    if BACKENDS[backend].artifact == "gguf":
        return tuple(sorted({*engine.quantised_formats} & MIXTURES.keys() - NEEDS_IMPORTANCE))
    return engine.quantised_formats


def obstacle(weight_format: str, engine: EngineInfo, backend: str, architecture: Architecture) -> str | None:
    """Why an engine cannot run this architecture in a format; None where it may.

    Args:
        weight_format: from `own_name`.
        engine: as installed.
        backend: its name.
        architecture: of a model that is not quantised yet.
    """
    if weight_format in PLAIN:
        return None
    made = made_by(engine, backend)
    at_load = BACKENDS[backend].quantises_at_load
    elsewhere = architecture.is_mixture or architecture.model_type in _CONVOLUTIONS  # most weights in no linear layer
    if weight_format in NEEDS_IMPORTANCE and made:
        near = difflib.get_close_matches(weight_format, made, n=2, cutoff=0)
        return (
            f"{weight_format} (-w) needs an importance matrix of the model's activations, and none is made here; "
            f"{' and '.join(near)} need none"
        )
    if weight_format not in made:
        usual = (name for name in made if "-g" not in name)
        lacking = f"it has no {weight_format} weights (-w); it has {', '.join((*PLAIN, *usual))}"
        hint = _WITH_TORCHAO if at_load and not made and not elsewhere else ""
        return lacking + _others(weight_format, backend) + hint
    if at_load and elsewhere:
        what = "experts" if architecture.is_mixture else f"the matrices of {architecture.model_type}"
        return f"torchao quantises linear layers (-w {weight_format}), and {what} are in none"
    nominal = roofline_name(weight_format, backend)
    if not is_quantised(architecture, nominal):
        block = _least_block(nominal)
        return f"blocks of {block} numbers divide no row of its matrices, so -w {weight_format} would change nothing"
    return None


def _others(weight_format: str, backend: str) -> str:
    """Which engines have a format that this one lacks, for the end of a sentence."""
    has = {
        "torch": weight_format in _TORCHAO,
        "mlx": "bit" in weight_format or weight_format in _MICROSCALED,
        "llama.cpp": own_name(weight_format, "llama.cpp") in MIXTURES.keys() - NEEDS_IMPORTANCE,
    }
    others = [name for name, having in has.items() if having and name != backend]
    return f"; {' and '.join(others)} {'has' if len(others) == 1 else 'have'} {weight_format}" if others else ""


def _least_block(nominal: str) -> int:
    """llama.cpp takes the blocks of 32 that most of its formats have where larger ones do not fit."""
    return 32 if nominal in MIXTURES else FORMATS[nominal].block_elements
