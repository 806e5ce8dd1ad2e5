"""llama.cpp's words for a model: "qwen2 7B Q4_K - Medium" is its architecture, size and mixture.

Source: `llama_ftype_name` in llama.cpp's `src/llama-model-loader.cpp`.
"""

from __future__ import annotations

import re

_SIZES = {"s": "Small", "m": "Medium", "l": "Large"}
_BITS = {
    "iq1_s": "1.5625", "iq1_m": "1.75", "iq2_xxs": "2.0625", "iq2_xs": "2.3125", "iq2_s": "2.5", "iq2_m": "2.7",
    "iq3_xxs": "3.0625", "iq3_xs": "3.3", "iq3_s": "3.4375", "iq4_nl": "4.5", "iq4_xs": "4.25",
}  # fmt: skip

FTYPE_NAMES = {
    "f32": "all F32",
    **{name: name.upper() for name in ("f16", "bf16", "nvfp4", "q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1")},
    **{name: name.upper() for name in ("q6_k", "q8_0")},
    **{f"q{bits}_k_{size}": f"Q{bits}_K - {_SIZES[size]}" for bits in (4, 5) for size in "sm"},
    **{f"q3_k_{size}": f"Q3_K - {_SIZES[size]}" for size in "sml"},
    "q2_k": "Q2_K - Medium",
    "q2_k_s": "Q2_K - Small",
    **{name: f"{name.upper()} - {bits} bpw" for name, bits in _BITS.items()},
    "iq3_m": "IQ3_S mix - 3.66 bpw",
    "tq1_0": "TQ1_0 - 1.69 bpw ternary",
    "tq2_0": "TQ2_0 - 2.06 bpw ternary",
    "mxfp4_moe": "MXFP4 MoE",
}
"""llama.cpp's name of a weight format, by ours."""

_BY_FTYPE = {name.lower(): ours for ours, name in FTYPE_NAMES.items()}
_LABEL = re.compile(
    r"(?P<model>\S+ .*?)(?: \(guessed\))?(?: mostly)? (?P<ftype>(?:all )?I?[BFMNQT]\S*(?: (?:-|mix|MoE).*)?)"
)


def split_label(label: str) -> tuple[str, str | None]:
    """Model and weight format of a label; the whole label and None where it ends in no format known here."""
    match = _LABEL.fullmatch(label)
    ours = _BY_FTYPE.get(match["ftype"].lower()) if match else None
    return (match["model"], ours) if match and ours else (label, None)


def join_label(model: str, weight_format: str | None) -> str:
    """The label of a model in a weight format; a name that says its format already stays as it is."""
    if weight_format is None or weight_format in re.sub(r"[^a-z0-9]+", "_", model.lower()):
        return model
    return f"{model} {FTYPE_NAMES.get(weight_format, weight_format)}"
