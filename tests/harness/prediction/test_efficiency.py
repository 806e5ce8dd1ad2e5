import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.machine.catalog import load_catalog
from harness.prediction.coefficients import load_coefficients
from harness.prediction.efficiency import decode_rate, is_mlx_format
from harness.prediction.hardware import CLASS_NAMES, Hardware, Range, device_class, from_device

DEVICES = {device.id: device for device in load_catalog() if device.bandwidth_bytes_s is not None}
HARDWARE = st.builds(
    Hardware,
    bandwidth_bytes_s=st.floats(1e9, 1e14),
    device_class=st.sampled_from([None, *CLASS_NAMES]),
    release_year=st.none() | st.integers(2010, 2040),
    device_id=st.none() | st.sampled_from(sorted(DEVICES)),
)
STEP_BYTES = st.floats(1e6, 1e13)
LAYERS = st.integers(1, 200)


@given(HARDWARE, STEP_BYTES, LAYERS)
def test_a_range_is_ordered_and_below_the_ceiling(hardware, step_bytes, n_layers):
    rate = decode_rate(hardware, step_bytes, n_layers)
    assert 0 < rate.low <= rate.mid <= rate.high <= hardware.bandwidth_bytes_s / step_bytes * (1 + 1e-12)
    assert rate.mid < hardware.bandwidth_bytes_s / step_bytes


@given(HARDWARE, STEP_BYTES, LAYERS, st.floats(1, 100))
def test_more_bandwidth_never_lowers_a_rate_and_more_bytes_never_raise_it(hardware, step_bytes, n_layers, factor):
    rate = decode_rate(hardware, step_bytes, n_layers)
    faster = Hardware(
        hardware.bandwidth_bytes_s * factor, hardware.device_class, hardware.release_year, hardware.device_id
    )
    larger = decode_rate(hardware, step_bytes * factor, n_layers)
    for end in ("low", "mid", "high"):
        assert getattr(decode_rate(faster, step_bytes, n_layers), end) >= getattr(rate, end) * (1 - 1e-12)
        assert getattr(larger, end) <= getattr(rate, end) * (1 + 1e-12)


def test_a_rate_by_pencil():
    decode = load_coefficients().decode
    # 500 GB/s, 2023, no class: 5 GB take 10 ms, the excess in proportion, 32 layers their fixed time.
    expected_s = 0.010 * (1 + decode.excess) + 32 * decode.layer_s
    rate = decode_rate(Hardware(500e9, release_year=2023), 5e9, 32)
    assert rate.mid == pytest.approx(1 / expected_s)
    assert rate.low == pytest.approx(rate.mid * decode.spread.low)


def test_mlx_on_apple_by_pencil():
    decode = load_coefficients().decode
    apple = Hardware(500e9, "apple", 2023)
    beyond_s = 0.010 * decode.excess * decode.classes["apple"].excess
    beyond_s += 32 * decode.layer_s * decode.classes["apple"].layer
    assert decode_rate(apple, 5e9, 32).mid == pytest.approx(1 / (0.010 + beyond_s))
    assert decode_rate(apple, 5e9, 32, is_mlx=True).mid == pytest.approx(1 / (0.010 + beyond_s * decode.mlx))
    nvidia = Hardware(500e9, "nvidia", 2023)
    assert decode_rate(nvidia, 5e9, 32, is_mlx=True) == decode_rate(nvidia, 5e9, 32)


def test_mlx_formats_by_name():
    assert all(map(is_mlx_format, ("4bit", "8bit-g32", "3bit")))
    assert not any(map(is_mlx_format, ("q4_0", "bf16", "int8", "mxfp4", "bit", "4bits")))


@pytest.mark.parametrize(
    ("device_id", "step_bytes", "n_layers", "low", "high"),
    [
        ("b300", 810e9, 126, 3, 9.6),  # Llama 3.1 405B in bf16: its ceiling is 9.9
        ("rtx-5090", 1.2e9, 28, 250, 800),  # Qwen3 0.6B in bf16: the ceiling of 1490 is nobody's
        ("raspberry-pi-5", 0.8e9, 16, 8, 21),  # Llama 3.2 1B in 4 bits: its ceiling is 21
        ("rubin-vr200", 1.2e9, 28, 100, 1000),  # bound by layers, not by 22 TB/s
    ],
)
def test_extremes_stay_sensible(device_id, step_bytes, n_layers, low, high):
    rate = decode_rate(from_device(DEVICES[device_id]), step_bytes, n_layers)
    assert low < rate.mid < high


def test_the_basis_counts_devices_and_the_devices_own_rates():
    spark = decode_rate(from_device(DEVICES["dgx-spark-gb10"]), 1e10, 32)
    assert spark.basis == (
        "class NVIDIA and AMD chips with unified memory: "
        "published rates of 5 devices, 23 of these rates are of this one"
    )
    assert decode_rate(Hardware(1e12), 1e10, 32).basis == "published rates of 53 devices of all classes"


def test_every_device_of_the_catalog_has_a_class_and_a_rate():
    for device in DEVICES.values():
        assert device_class(device) in CLASS_NAMES
        assert decode_rate(from_device(device), 1e10, 32).mid > 0
    assert device_class(DEVICES["h100-sxm"]) == "nvidia-hbm"
    assert device_class(DEVICES["rtx-5090"]) == "nvidia"
    assert device_class(DEVICES["strix-halo-395"]) == device_class(DEVICES["dgx-spark-gb10"]) == "unified"
    assert device_class(DEVICES["raspberry-pi-5"]) == device_class(DEVICES["ddr5-6000-2ch"]) == "cpu"


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="bandwidth_bytes_s is 0"):
        Hardware(0)
    with pytest.raises(ValueError, match="device_class is 'npu'"):
        Hardware(1e12, "npu")
    with pytest.raises(ValueError, match="is no range"):
        Range(2, 1, 3, "")
    with pytest.raises(ValueError, match="n_layers 0"):
        decode_rate(Hardware(1e12), 1e9, 0)
    with pytest.raises(ValueError, match="bandwidth_gbs of gh200-144gb is not known"):
        from_device(next(device for device in load_catalog() if device.id == "gh200-144gb"))
