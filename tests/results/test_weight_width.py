import pytest

from harness.roofline.formats import FORMATS
from harness.roofline.nominal import PLAIN, WEIGHT_FORMATS
from results.weight_width import nominal_bits


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (8, "8bit q8_0 int8 fp8 mxfp8 Q8_0 gptq-8bit f8_e4m3"),
        (6, "6bit q6_k 6bit-g32"),
        (5, "q5_k_m q5_0"),
        (4, "4bit 4bit-g32 q4_k_m q4_0 iq4_xs iq4_nl mxfp4 mxfp4_moe mxfp4_bf16 nvfp4 int4 nf4 awq-4bit"),
        (3, "3bit q3_k_l iq3_xxs"),
        (2, "q2_k iq2_m tq2_0"),
        (1, "iq1_s tq1_0"),
    ],
)
def test_a_name_promises_its_bits(bits: int, names: str) -> None:
    assert {name: nominal_bits(name) for name in names.split()} == dict.fromkeys(names.split(), bits)


@pytest.mark.parametrize("name", [*PLAIN, "f64", "fp16", "fp32", None, float("nan"), "", "gptq", "quick", "q", "bit"])
def test_plain_unknown_and_empty_ones_promise_none(name: object) -> None:
    assert nominal_bits(name) is None


@pytest.mark.parametrize("name", sorted(WEIGHT_FORMATS - {*PLAIN}))
def test_every_quantised_format_of_ours_has_a_width_near_its_blocks(name: str) -> None:
    bits = nominal_bits(name)
    assert bits is not None
    if name in FORMATS:
        assert bits - 0.1 <= 8 * FORMATS[name].element_bytes <= bits + 1.1
