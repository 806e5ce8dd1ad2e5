"""Fitting `prefill`'s coefficients to the published prefill rates: medians, each device counting once."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from harness.prediction.coefficients import DevicePrefill, Prefill, Scale, Spread
from harness.prediction.prefill import prefill_class, reach_flops_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.prediction.hardware import Hardware
    from results.published import PublishedRate

_TAIL = 0.1  # of the rates below low, and above high


def fit_prefill(rates: Sequence[PublishedRate], hardware: dict[str, Hardware]) -> Prefill:
    """The coefficients from rates of devices that `hardware` knows by their id."""
    rates = [rate for rate in rates if rate.prefill_tok_s is not None]
    moe_factor = _moe_factor(rates)
    of_device: dict[str, list[float]] = {}
    for rate in rates:
        of_device.setdefault(rate.device_id, []).append(published_flops_s(rate) / (moe_factor if rate.is_moe else 1))
    flops_s = {device: median(values) for device, values in of_device.items()}
    reach = {
        device: reach_flops_s(one.fp16_flops_s, one.bandwidth_bytes_s)
        for device, one in hardware.items()
        if one.fp16_flops_s is not None
    }
    return Prefill(
        moe_factor=_rounded(moe_factor),
        devices={
            device: DevicePrefill(_rounded(flops_s[device]), len(of_device[device])) for device in sorted(flops_s)
        },
        device_spread=_device_spread(of_device),
        by_matrix_rate=_scale(
            {device: value / reach[device] for device, value in flops_s.items() if device in reach}, hardware
        ),
        by_bandwidth=_scale(
            {device: flops_s[device] / hardware[device].bandwidth_bytes_s for device in flops_s}, hardware
        ),
    )


def published_flops_s(rate: PublishedRate) -> float:
    """Two operations for each token and parameter, and attention's where the prompt is known to be long.

    Without the LM head, which runs for the last position only. At the 512 tokens that most prefills have, attention is
    about 1 % of an 8B model's operations; at 8192 it is 15 %.
    """
    if rate.prefill_tok_s is None:
        raise ValueError(f"{rate.model} on {rate.device_id} has no prefill rate")
    return rate.prefill_tok_s * (2 * (rate.active_params - rate.head_params) + rate.prefill_attention_flops)


def _moe_factor(rates: Sequence[PublishedRate]) -> float:
    """What mixtures of experts reach of dense models' FLOP/s, on the devices that ran both."""
    ratios = []
    for device in {rate.device_id for rate in rates}:
        dense, moe = (
            [published_flops_s(rate) for rate in rates if rate.device_id == device and rate.is_moe == is_moe]
            for is_moe in (False, True)
        )
        if dense and moe:
            ratios.append(median(moe) / median(dense))
    return median(ratios)


def _scale(ratios: dict[str, float], hardware: dict[str, Hardware]) -> Scale:
    """A ratio a class, drawn to that of all as if that were one more device, and what leaving each device out shows."""
    classes = {device: prefill_class(hardware[device]) for device in ratios}
    left_out = [
        math.log(
            ratio
            / _class_ratio({other: ratios[other] for other in ratios if other != device}, classes, classes[device])
        )
        for device, ratio in ratios.items()
    ]
    return Scale(
        classes={name: _rounded(_class_ratio(ratios, classes, name)) for name in sorted(set(classes.values()))},
        any_class=_rounded(median(ratios.values())),
        spread=_spread(left_out),
        n_devices=len(ratios),
        median_error=_rounded(median(abs(math.expm1(-residual)) for residual in left_out)),
    )


def _class_ratio(ratios: dict[str, float], classes: dict[str, str], name: str) -> float:
    logs = {device: math.log(ratio) for device, ratio in ratios.items()}
    own = [value for device, value in logs.items() if classes[device] == name]
    pooled = median(logs.values())
    return math.exp((len(own) * median(own) + pooled) / (len(own) + 1)) if own else math.exp(pooled)


def _device_spread(of_device: dict[str, list[float]]) -> Spread:
    """One rate of a device against the median of its others."""
    return _spread(
        [
            math.log(value / median(values[:k] + values[k + 1 :]))
            for values in of_device.values()
            for k, value in enumerate(values)
            if len(values) > 1
        ]
    )


def _spread(residuals: list[float]) -> Spread:
    low, high = np.quantile(residuals, [_TAIL, 1 - _TAIL])
    return Spread(_rounded(min(math.exp(low), 1.0)), _rounded(max(math.exp(high), 1.0)))


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")
