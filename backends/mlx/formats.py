"""MLX's quantised formats by name."""

from __future__ import annotations

import itertools

import mlx.core as mx

_USUAL_GROUP = 64  # weights that share a scale and a bias, where mlx-lm is told nothing else
_GROUPS = (_USUAL_GROUP, 32, 128)
_BITS = (8, 6, 5, 4, 3, 2)
_MICROSCALED = ("mxfp4", "nvfp4")


def formats() -> tuple[str, ...]:
    """What the installed MLX can make: "4bit" with a scale and a bias to 64 numbers, "4bit-g32" to 32, …, "mxfp4"."""
    affine = (affine_name(bits, group_size) for group_size, bits in itertools.product(_GROUPS, _BITS))
    return (*affine, *filter(_has, _MICROSCALED))


def affine_name(bits: int, group_size: int) -> str:
    """The name of numbers of so many bits, with a scale and a bias to a group: "4bit", "4bit-g32"."""
    return f"{bits}bit" + ("" if group_size == _USUAL_GROUP else f"-g{group_size}")


def parameters(name: str) -> tuple[int | None, int | None, str]:
    """Group, bits (None: the mode's own) and mode of one of `formats`, as mlx-lm takes them."""
    if name in _MICROSCALED:
        return None, None, name
    bits, _, group = name.partition("bit")
    return int(group.removeprefix("-g") or _USUAL_GROUP), int(bits), "affine"


def _has(mode: str) -> bool:
    try:
        mx.quantize(mx.zeros((32, 64)), mode=mode)
    except (TypeError, ValueError):
        return False
    return True
