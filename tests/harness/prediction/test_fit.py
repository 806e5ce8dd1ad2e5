from collections import defaultdict
from dataclasses import asdict
from statistics import mean, median

import pytest

from harness.prediction.coefficients import load_coefficients
from harness.prediction.fit import cross_validation, fit
from harness.prediction.fit_prefill import published_flops_s
from results.published import load_published

PREDICTIONS = cross_validation()


def flat(value, path=""):
    if not isinstance(value, dict):
        return {path: value}
    return {name: number for key, inner in value.items() for name, number in flat(inner, f"{path}/{key}").items()}


def test_the_shipped_coefficients_are_a_fit_to_the_shipped_rates():
    assert flat(asdict(load_coefficients())) == pytest.approx(flat(asdict(fit())), rel=2e-3)


def test_half_of_the_rates_of_devices_left_out_are_predicted_within_9_percent():
    assert len(PREDICTIONS) == 159
    assert median(one.relative_error for one in PREDICTIONS) < 0.09
    of_device = defaultdict(list)
    for one in PREDICTIONS:
        of_device[one.rate.device_id].append(one.relative_error)
    assert median(median(errors) for errors in of_device.values()) < 0.12  # each device once, however many rows


def test_eight_of_ten_rates_of_devices_left_out_lie_in_their_range():
    assert 0.75 < mean(one.is_covered for one in PREDICTIONS) < 0.85


def test_a_device_left_out_does_not_set_its_own_range():
    by_class = defaultdict(set)
    for one in PREDICTIONS:
        by_class[one.device_class].add(one.spread)
    assert len(by_class["apple"]) > 1


def test_signs_are_physical():
    decode = load_coefficients().decode
    assert 0 < decode.bandwidth_exponent < 1  # else more bandwidth could lower the rate
    assert 0 < decode.year_factor < 1
    assert decode.excess > 0
    assert 1e-5 < decode.layer_s < 1e-3


def test_prefill_operations_by_pencil():
    # Llama 3 8B: 7.50e9 parameters without the looked-up embedding, 0.525e9 of them in the head, which is left out.
    rate = next(one for one in load_published() if one.device_id == "rtx-4090" and one.prefill_tok_s == 7138.99)
    assert published_flops_s(rate) == pytest.approx(7138.99 * 2 * 6.979e9, rel=1e-3)
    # 8192 tokens: 32 layers of 32 heads of 128, four operations an element and key, 4096.5 keys in the mean.
    long = next(one for one in load_published() if one.device_id == "rtx-4090" and one.prefill_tok_s == 4039.68)
    attention = 32 * 32 * 128 * 4 * 4096.5
    assert published_flops_s(long) == pytest.approx(4039.68 * (2 * 6.979e9 + attention), rel=1e-3)


def test_mlx_rates_of_devices_left_out_are_half_predicted_within_14_percent():
    assert median(one.relative_error for one in PREDICTIONS if "mlx" in one.rate.engine.lower()) < 0.14
    assert 0 < load_coefficients().decode.mlx < 1
