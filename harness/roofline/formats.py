"""Element formats: how many bytes a number takes, scales included.

Sources: ggml's block structures (`ggml-common.h`), which the `gguf` package repeats; MLX's affine quantisation, which
keeps a scale and a bias of 16 bits for each group; OCP's microscaling formats. Formats with one scale for a whole row
or for 128×128 numbers count without it: it is under 0.3 %.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_MLX_BITS = (2, 3, 4, 5, 6, 8)
_MLX_GROUPS = (32, 64, 128)
_MLX_DEFAULT_GROUP = 64


@dataclass(frozen=True)
class ElementFormat:
    """Numbers are stored in blocks: `block_elements` of them in `block_bytes`, scales included."""

    block_elements: int
    block_bytes: int

    @property
    def element_bytes(self) -> float:
        """Bytes of one number, on average."""
        return self.block_bytes / self.block_elements

    def n_bytes(self, n_elements: int) -> int:
        """Bytes of so many numbers; a block that is begun counts whole."""
        return -(-n_elements // self.block_elements) * self.block_bytes


def _mlx_formats() -> dict[str, ElementFormat]:
    """MLX's names: "4bit" has groups of 64, others are named, "4bit-g32"."""
    return {
        f"{bits}bit" if group == _MLX_DEFAULT_GROUP else f"{bits}bit-g{group}": ElementFormat(
            group, group * bits // 8 + 4
        )
        for bits in _MLX_BITS
        for group in _MLX_GROUPS
    }


FORMATS = {
    "f64": ElementFormat(1, 8),
    "f32": ElementFormat(1, 4),
    "f16": ElementFormat(1, 2),
    "bf16": ElementFormat(1, 2),
    "fp8": ElementFormat(1, 1),
    "int8": ElementFormat(1, 1),
    "int4": ElementFormat(128, 64 + 4),  # torchao's usual group, with a scale and a zero point of 16 bits
    "q8_0": ElementFormat(32, 34),
    "q5_1": ElementFormat(32, 24),
    "q5_0": ElementFormat(32, 22),
    "q4_1": ElementFormat(32, 20),
    "q4_0": ElementFormat(32, 18),
    "q6_k": ElementFormat(256, 210),
    "q5_k": ElementFormat(256, 176),
    "q4_k": ElementFormat(256, 144),
    "q3_k": ElementFormat(256, 110),
    "q2_k": ElementFormat(256, 84),
    "iq4_nl": ElementFormat(32, 18),
    "iq4_xs": ElementFormat(256, 136),
    "iq3_s": ElementFormat(256, 110),
    "iq3_xxs": ElementFormat(256, 98),
    "iq2_s": ElementFormat(256, 82),
    "iq2_xs": ElementFormat(256, 74),
    "iq2_xxs": ElementFormat(256, 66),
    "iq1_m": ElementFormat(256, 56),
    "iq1_s": ElementFormat(256, 50),
    "tq2_0": ElementFormat(256, 66),
    "tq1_0": ElementFormat(256, 54),
    "mxfp4": ElementFormat(32, 17),
    "nvfp4": ElementFormat(64, 36),
    "mxfp4-mlx": ElementFormat(32, 17),
    "nvfp4-mlx": ElementFormat(16, 9),
    **_mlx_formats(),
    # MLX's quantised KV cache beside float32 weights: the scale and the bias are float32 too.
    "8bit-f32": ElementFormat(64, 64 + 8),
    "4bit-f32": ElementFormat(64, 32 + 8),
}
"""By lower-case name, of weights and of the KV cache alike."""


def element_format(name: str) -> ElementFormat:
    """The format of this name, in upper or lower case.

    Raises:
        ValueError: there is none; the message has the nearest names.
    """
    if name.lower() not in FORMATS:
        raise unknown_format(name, FORMATS)
    return FORMATS[name.lower()]


def element_bytes(name: str) -> float:
    """Bytes of one number on average, scales included: 2 for "f16", 34/32 for "q8_0".

    Raises:
        ValueError: there is no such format.
    """
    return element_format(name).element_bytes


def unknown_format(name: str, known: Collection[str]) -> ValueError:
    """The error for a name that is none of these."""
    nearest = difflib.get_close_matches(name.lower(), sorted(known), n=3) or sorted(known)
    return ValueError(f"unknown format {name!r}; there is {', '.join(nearest)}")
