"""The FLOP/s that a prefill really reaches, as a range.

From the best of three grounds: the device's own published prefill rates; the catalog's FP16 matrix rate times the share
of it (MFU) that its class reaches; its bandwidth times the FLOP for each byte that its class reaches. A device's FLOP/s
are prompt tokens a second times two for each parameter that every token passes, without the LM head.

No single MFU holds: published ones run from 0.15 (H100) to 1.04 (RTX 4080, FP16 accumulation). What was reached grows
with rate^(1/3) · bandwidth^(2/3); the errors for devices left out are in `coefficients.json`.
"""

from __future__ import annotations

import math
import re

from harness.prediction.coefficients import Prefill, Spread, load_coefficients
from harness.prediction.hardware import CLASS_NAMES, Hardware, Range
from results.amounts import counted

APPLE_WITH_MATRIX_UNITS = "apple-m5"
_PREFILL_CLASS_NAMES = {**CLASS_NAMES, APPLE_WITH_MATRIX_UNITS: "Apple from the M5 on"}


def prefill_flops_s(hardware: Hardware, *, is_moe: bool) -> Range:
    """Floating-point operations a second of a prefill of a few hundred tokens or more, batch 1.

    Args:
        hardware: the device.
        is_moe: whether the model is a mixture of experts, whose small matrix products reach less.
    """
    prefill = load_coefficients().prefill
    mid, spread, basis = _dense(prefill, hardware)
    if is_moe:
        mid *= prefill.moe_factor
        basis += f", × {prefill.moe_factor:.2f} for a mixture of experts"
    limit = hardware.peak_flops_s or math.inf
    low, mid, high = (min(flops_s, limit) for flops_s in (mid * spread.low, mid, mid * spread.high))
    return Range(low, mid, high, basis)


def reach_flops_s(fp16_flops_s: float, bandwidth_bytes_s: float) -> float:
    """What prefill grows with: the FP16 rate and the bandwidth, as a geometric mean that weighs bandwidth twice."""
    return math.cbrt(fp16_flops_s * bandwidth_bytes_s**2)


def prefill_class(hardware: Hardware) -> str:
    """The device class, with Apple's GPUs from the M5 on, which have matrix units, apart."""
    if hardware.device_id and re.match(r"apple-m([5-9]|\d\d)\b", hardware.device_id):
        return APPLE_WITH_MATRIX_UNITS
    return hardware.device_class or ""


def _dense(prefill: Prefill, hardware: Hardware) -> tuple[float, Spread, str]:
    """FLOP/s of a dense model, the spread around it, and its ground."""
    of_class = prefill_class(hardware)
    if own := prefill.devices.get(hardware.device_id or ""):
        rates = counted(own.n_rates, "published prefill rate")
        return own.flops_s, prefill.device_spread, f"{rates} of this device"
    if hardware.fp16_flops_s is not None:
        scale = prefill.by_matrix_rate
        reach = reach_flops_s(hardware.fp16_flops_s, hardware.bandwidth_bytes_s)
        flops_s = scale.classes.get(of_class, scale.any_class) * reach
        mfu = flops_s / hardware.fp16_flops_s
        return flops_s, scale.spread, f"the catalog's FP16 rate × {mfu:.2f}, from {counted(scale.n_devices, 'device')}"
    scale = prefill.by_bandwidth
    if of_class == "cpu":
        # None was published. This repository's example reaches 14 to 18 FLOP for each byte on 2 cores.
        lowest = min(scale.classes.values()) * hardware.bandwidth_bytes_s
        return lowest / 3, Spread(1 / 3, 3), "no published prefill rate of a CPU: a ninth of the slowest class up to it"
    ratio = scale.classes.get(of_class, scale.any_class)
    name = _PREFILL_CLASS_NAMES[of_class] if of_class in scale.classes else "any device"
    basis = f"no matrix rate known: {ratio:.0f} FLOP for each byte of bandwidth, from published rates of {name}"
    return ratio * hardware.bandwidth_bytes_s, scale.spread, basis
