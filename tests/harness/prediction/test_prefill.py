from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.catalog import load_catalog
from harness.prediction.hardware import CLASS_NAMES, Hardware, from_device
from harness.prediction.prefill import prefill_class, prefill_flops_s, reach_flops_s

DEVICES = {device.id: device for device in load_catalog() if device.bandwidth_bytes_s is not None}


def test_a_devices_own_rates_come_first():
    # RTX A6000: 482.19 tok/s of Llama 3 70B (68.45e9 parameters a token passes), 3780.55 of the 8B (6.979e9).
    by_pencil = median([482.19 * 2 * 68.45e9, 3780.55 * 2 * 6.979e9])
    found = prefill_flops_s(from_device(DEVICES["rtx-a6000"]), is_moe=False)
    assert found.mid == pytest.approx(by_pencil, rel=2e-3)
    assert found.basis == "2 published prefill rates of this device"


def test_a_matrix_rate_comes_before_bandwidth():
    assert "FP16 rate ×" in prefill_flops_s(from_device(DEVICES["rtx-5070"]), is_moe=False).basis
    laptop = prefill_flops_s(from_device(DEVICES["rtx-5090-laptop"]), is_moe=False)
    assert laptop.basis.endswith("from published rates of NVIDIA cards with GDDR memory")
    assert reach_flops_s(8e12, 1e12) == pytest.approx(2e12)


def test_apples_matrix_units_are_a_class_of_their_own():
    assert prefill_class(from_device(DEVICES["apple-m5-ultra"])) == "apple-m5"
    assert prefill_class(from_device(DEVICES["apple-m3-ultra"])) == "apple"
    # 608.05 tok/s of Mistral 7B (6.98e9 parameters a token passes) on an M5's 153.6 GB/s: 55 FLOP for each byte.
    ultra = prefill_flops_s(from_device(DEVICES["apple-m5-ultra"]), is_moe=False)
    assert ultra.mid / 1228.8e9 == pytest.approx(608.05 * 2 * 6.98e9 / 153.6e9, rel=0.05)
    assert "Apple from the M5 on" in ultra.basis


def test_a_cpu_says_that_nothing_was_published():
    assert prefill_flops_s(from_device(DEVICES["ddr5-6000-2ch"]), is_moe=False).basis.startswith("no published")


def test_a_mixture_of_experts_reaches_less():
    hardware = from_device(DEVICES["rtx-5070"])
    dense, moe = (prefill_flops_s(hardware, is_moe=is_moe) for is_moe in (False, True))
    assert moe.mid < dense.mid
    assert moe.basis.endswith("for a mixture of experts")


@given(
    st.builds(
        Hardware,
        bandwidth_bytes_s=st.floats(1e9, 1e14),
        device_class=st.sampled_from([None, *CLASS_NAMES]),
        fp16_flops_s=st.none() | st.floats(1e11, 1e17),
        peak_flops_s=st.none() | st.floats(1e11, 1e17),
    ),
    st.booleans(),
)
def test_a_range_is_ordered_and_below_the_matrix_rate(hardware, is_moe):
    found = prefill_flops_s(hardware, is_moe=is_moe)
    assert 0 < found.low <= found.mid <= found.high
    assert hardware.peak_flops_s is None or found.high <= hardware.peak_flops_s


def test_every_device_of_the_catalog_has_a_prefill_rate():
    for device in DEVICES.values():
        assert prefill_flops_s(from_device(device), is_moe=False).mid > 1e10
