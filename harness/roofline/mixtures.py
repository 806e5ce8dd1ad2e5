"""llama.cpp's mixtures: which of its element formats each tensor of a "Q4_K_M" file gets.

A mixture has a format for most matrices and gives more bits to those that suffer most: values, down projections, the LM
head. The rule is `llama_tensor_get_type` of llama.cpp's `llama-quant.cpp`, as llama-cpp-python 0.3.36 has it;
`test_nominal.py` holds it against llama.cpp's own choice, tensor by tensor. Formats that llama.cpp refuses to make
without an importance matrix are taken as made with one, all others as made without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from harness.roofline.formats import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable

MIXTURES = {
    **{name: name for name in ("q8_0", "q6_k", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "iq4_xs", "iq3_s", "iq3_xxs")},
    **{name: name for name in ("q2_k", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s", "tq2_0", "tq1_0")},
    **{f"q5_k_{size}": "q5_k" for size in "sm"},
    **{f"q4_k_{size}": "q4_k" for size in "sm"},
    **{f"q3_k_{size}": "q3_k" for size in "sml"},
    "q2_k_s": "q2_k",
    "iq3_m": "iq3_s",
    "iq3_xs": "iq3_s",
    "iq2_m": "iq2_s",
    "iq2_s": "iq2_xs",
    "mxfp4_moe": "q8_0",  # of all but the experts, which are mxfp4
}
"""The format of most matrices, by the mixture's lower-case name."""

NEEDS_IMPORTANCE = frozenset({"q2_k_s", "iq3_xs", "iq3_xxs", "iq2_m", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"})
"""Mixtures that llama.cpp does not make of a usual model without an importance matrix."""


@dataclass(frozen=True)
class Place:
    """Where in the model a tensor lies, as far as the rule asks."""

    index: int  # of its layer, among the layers that have such a tensor; 0 outside the stack
    n_layers: int  # that have one
    queries_per_key: int  # attention heads that share a key; llama.cpp's n_gqa
    n_experts: int  # of a layer, 0 without a mixture of experts
    is_70b: bool = False  # llama.cpp's own mark of 80-layer models

    @property
    def first_eighth(self) -> bool:
        """In the layers that most mixtures favour."""
        return self.index < self.n_layers // 8

    @property
    def more_bits(self) -> bool:
        """In the first or the last eighth of the layers, or every third between."""
        last_eighth = self.index >= 7 * self.n_layers // 8
        return self.first_eighth or last_eighth or (self.index - self.n_layers // 8) % 3 == 2

    @property
    def middle(self) -> bool:
        """Neither in the first eighth nor in the last."""
        return self.n_layers // 8 <= self.index < 7 * self.n_layers // 8

    @property
    def grouped(self) -> bool:
        """Values are so few that they may cost more."""
        return self.queries_per_key >= 4


@dataclass(frozen=True)
class _Rule:
    """In these mixtures (a list of names, "" for all), tensors of this role get this format where it applies."""

    role: str
    mixtures: str
    format: str
    applies: Callable[[Place], bool] = lambda _: True

    def holds(self, role: str, mixture: str, place: Place) -> bool:
        """Whether the rule says anything of this tensor."""
        named = not self.mixtures or mixture in self.mixtures.split()
        return role == self.role and named and self.applies(place)


_TINY = "iq1_s iq1_m iq2_xxs iq2_xs iq2_s iq2_m"  # a family of its own in llama.cpp's rule
_EIGHT_EXPERTS_OUTPUT = "q2_k iq3_xs iq3_xxs q3_k_s q3_k_m iq4_nl q4_k_s q4_k_m iq3_s iq3_m iq4_xs"

# The first that holds decides; where none does, a matrix has the mixture's own format.
_RULES = (
    _Rule("output", f"{_TINY} iq3_xxs", "q5_k"),
    _Rule("output", "q8_0 mxfp4_moe", "q8_0"),
    _Rule("output", "", "q6_k"),
    _Rule("token_embd", "iq1_s iq1_m iq2_xxs iq2_xs", "q2_k"),
    _Rule("token_embd", "iq2_s iq2_m iq3_xxs", "iq3_s"),
    _Rule("token_embd", "tq1_0 tq2_0", "q4_k"),
    _Rule("attn_v", _TINY, "q4_k", lambda place: place.grouped or place.n_experts >= 4),
    _Rule("attn_v", "iq2_s iq2_m", "iq3_s"),
    _Rule("attn_v", _TINY, "q2_k"),
    _Rule("attn_v", "", "q8_0", lambda place: place.n_experts == 8),
    _Rule("attn_v", "q2_k q2_k_s iq3_xxs iq3_xs iq3_s", "q4_k", lambda place: place.grouped),
    _Rule("attn_v", "q2_k", "q3_k"),
    _Rule("attn_v", "iq3_m", "q4_k"),
    _Rule("attn_v", "q3_k_m", "q5_k", lambda place: place.index < 2),
    _Rule("attn_v", "q3_k_m", "q4_k"),
    _Rule("attn_v", "q3_k_l", "q5_k"),
    _Rule("attn_v", "iq4_nl iq4_xs", "q5_k", lambda place: place.grouped),
    _Rule("attn_v", "q4_k_m q5_k_m", "q6_k", lambda place: place.more_bits),
    _Rule("attn_v", "q4_k_s", "q5_k", lambda place: place.index < 4),
    _Rule("attn_k", _TINY, "q4_k", lambda place: place.n_experts == 8),
    _Rule("attn_k", "", "q8_0", lambda place: place.n_experts == 8),
    *(_Rule(role, "iq3_xs", "iq3_xxs") for role in ("attn_k", "attn_q")),
    *(_Rule(role, "iq3_xxs", "iq2_s") for role in ("attn_k", "attn_q")),
    _Rule("attn_output", f"{_TINY} {_EIGHT_EXPERTS_OUTPUT}", "q5_k", lambda place: place.n_experts == 8),
    _Rule("attn_output", "iq1_s iq1_m", "iq2_xxs"),
    _Rule("attn_output", "iq2_s iq2_m iq3_xxs", "iq3_s"),
    _Rule("attn_output", "q2_k", "q3_k"),
    _Rule("attn_output", "q3_k_m iq3_m", "q4_k", lambda place: place.n_experts != 8),
    _Rule("attn_output", "q3_k_l", "q5_k", lambda place: place.n_experts != 8),
    *(_Rule(role, "iq3_xs", "iq3_xxs", lambda place: place.middle) for role in ("ffn_gate", "ffn_up")),
    _Rule("ffn_down", "iq2_s iq2_m", "iq3_s", lambda place: place.first_eighth),
    _Rule("ffn_down", _TINY, "q2_k", lambda place: place.first_eighth),
    _Rule("ffn_down", "q2_k", "q3_k"),
    _Rule("ffn_down", "q2_k_s", "q4_k", lambda place: place.first_eighth),
    _Rule("ffn_down", "q3_k_m", "q5_k", lambda place: place.index < place.n_layers // 16),
    _Rule("ffn_down", "q3_k_m", "q4_k"),
    _Rule("ffn_down", "q3_k_l", "q5_k"),
    _Rule("ffn_down", "iq3_m", "q4_k", lambda place: place.first_eighth),
    _Rule("ffn_down", "iq3_m", "q4_k", lambda place: place.n_experts == 8 and place.more_bits),
    _Rule("ffn_down", "iq4_nl iq4_xs q4_k_s", "q5_k", lambda place: place.first_eighth),
    _Rule("ffn_down", "q4_k_m q5_k_m", "q6_k", lambda place: place.more_bits),
)

# Blocks of 256 do not fit every row; these are of 32.
_SMALLER_BLOCKS = {
    "q6_k": "q8_0",
    "q5_k": "q5_1",
    "q4_k": "q5_0",
    **dict.fromkeys(("q3_k", "q2_k", "tq2_0", "tq1_0"), "q4_0"),
    **dict.fromkeys(("iq4_xs", "iq3_s", "iq3_xxs", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s"), "iq4_nl"),
}


def mixture_format(mixture: str, role: str, place: Place, row_elements: int) -> str:
    """The element format that llama.cpp gives a matrix.

    Args:
        mixture: one of `MIXTURES`.
        role: "output" (also an embedding that is the LM head too), "token_embd", "attn_q", "attn_k", "attn_v" (also a
            matrix that yields all three), "attn_output", "ffn_gate", "ffn_up", "ffn_down" or anything else.
        place: where it lies.
        row_elements: length of its rows, which a format's block must divide.
    """
    base = MIXTURES[mixture]
    if role == "output" and row_elements % FORMATS[base].block_elements:
        return fitting("q8_0", row_elements)
    chosen = next((rule.format for rule in _RULES if rule.holds(role, mixture, place)), base)
    if role == "attn_v" and place.is_70b and chosen in ("q3_k", "q4_k") and mixture not in _TINY.split():
        chosen = "q5_k"
    return fitting(chosen, row_elements)


def fitting(chosen: str, row_elements: int) -> str:
    """The format itself, one of smaller blocks where the rows are no multiple of its own, or f16."""
    for candidate in (chosen, _SMALLER_BLOCKS.get(chosen)):
        if candidate and row_elements % FORMATS[candidate].block_elements == 0:
            return candidate
    return "f16"
