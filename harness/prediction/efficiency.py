"""The decode rate that a device really reaches, as a range, from the bytes that a step reads.

A step takes the time of its bytes at the memory's full bandwidth, an excess in proportion, and a fixed time a layer:

    t = bytes / bandwidth · (1 + excess) + layers · layer_s
    excess = excess_0 · class · device · (bandwidth / 500 GB/s)^exponent · year_factor^(year - 2023)

The excess is what the kernels lose while they read: more of it on faster memory, which needs more loads in flight; less
on newer devices, which compute more for each byte. `layer_s` is starting a layer's kernels. Both are positive, so a
rate never exceeds the ceiling, more bandwidth never lowers it (the exponent is below 1), and more bytes never raise it.
On Apple devices both shrink by one factor for weights in MLX's formats, which only its kernels read. Not in it, since
it did not lower the error for devices left out: other weight formats, the kind of model.
"""

from __future__ import annotations

import re

from harness.prediction.coefficients import Decode, load_coefficients
from harness.prediction.hardware import CLASS_NAMES, Hardware, Range
from results.amounts import counted

REFERENCE_BANDWIDTH_BYTES_S = 5e11
REFERENCE_YEAR = 2023


def is_mlx_format(weight_format: str) -> bool:
    """Whether a format is one of MLX's, by its name: "4bit", "8bit-g32"."""
    return re.match(r"\d+bit\b", weight_format) is not None


def decode_rate(hardware: Hardware, step_bytes: float, n_layers: int, *, is_mlx: bool = False) -> Range:
    """Tokens a second of one sequence (batch 1).

    Args:
        hardware: the device.
        step_bytes: streamed weights and KV cache that a decode step reads.
        n_layers: of the model.
        is_mlx: whether the weights are in one of MLX's formats.

    Raises:
        ValueError: bytes or layers are not above 0.
    """
    if not (step_bytes > 0 and n_layers > 0):
        raise ValueError(f"step_bytes is {step_bytes!r}, n_layers {n_layers!r}; neither can be 0 or less")
    decode = load_coefficients().decode
    of_class = decode.classes.get(hardware.device_class or "")
    mlx = decode.mlx if is_mlx and hardware.device_class == "apple" else 1
    layer_s = decode.layer_s * (of_class.layer if of_class else 1)
    at_full_bandwidth_s = step_bytes / hardware.bandwidth_bytes_s
    beyond_s = at_full_bandwidth_s * _excess(decode, hardware) + n_layers * layer_s
    mid = 1 / (at_full_bandwidth_s + mlx * beyond_s)
    spread = of_class.spread if of_class else decode.spread
    return Range(mid * spread.low, mid, min(mid * spread.high, 1 / at_full_bandwidth_s), _basis(decode, hardware))


def _excess(decode: Decode, hardware: Hardware) -> float:
    of_class = decode.classes.get(hardware.device_class or "")
    of_device = decode.devices.get(hardware.device_id or "")
    # Beyond the years of the fitted devices the trend is not known.
    year = min(max(hardware.release_year or REFERENCE_YEAR, decode.first_year), decode.last_year)
    excess: float = (
        decode.excess
        * (of_class.excess if of_class else 1)
        * (of_device.excess if of_device else 1)
        * (hardware.bandwidth_bytes_s / REFERENCE_BANDWIDTH_BYTES_S) ** decode.bandwidth_exponent
        * decode.year_factor ** (year - REFERENCE_YEAR)
    )
    return excess


def _basis(decode: Decode, hardware: Hardware) -> str:
    if hardware.device_class is None:
        return f"published rates of {counted(len(decode.devices), 'device')} of all classes"
    of_class = decode.classes[hardware.device_class]
    basis = f"class {CLASS_NAMES[hardware.device_class]}: published rates of {counted(of_class.n_devices, 'device')}"
    if of_device := decode.devices.get(hardware.device_id or ""):
        several = f", {of_device.n_rates} of these rates are of this one"
        basis += several if of_device.n_rates > 1 else ", this one among them"
    return basis
