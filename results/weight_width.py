"""What a weight format's name promises: "4bit", "q4_k_m" and "mxfp4" are 4 bits, whatever they really take.

By name, since true bits tell little of what was asked for: scales come on top, some tensors stay wider, and of a tiny
model most of the bytes may be those. Rows show the true bits beside it (`weight_bits`).
"""

from __future__ import annotations

import re

_NAMES = re.compile(
    r"(?:.*-)?(?P<mlx>\d+)bit(?:-.*)?"  # MLX's and those of checkpoints: 4bit, 4bit-g32, gptq-4bit
    r"|(?:iq|tq|q)(?P<ggml>\d)(?:_.*)?"  # llama.cpp's: q4_k_m, iq4_xs
    r"|(?:(?:mx|nv)?fp|u?int|nf|f)(?P<element>\d+)(?:[_-].*)?",  # of the numbers themselves: mxfp4, int8, nf4
    re.IGNORECASE,
)
_PLAIN_BITS = 16


def nominal_bits(weight_format: object) -> int | None:
    """Bits of a quantised format by its name; None of a plain one, of an unknown one, and of an empty cell."""
    found = _NAMES.fullmatch(weight_format) if isinstance(weight_format, str) else None
    bits = int(found[found.lastgroup or 0]) if found else 0
    return bits if 0 < bits < _PLAIN_BITS else None
