"""The fitted numbers of `coefficients.json`, and what each of them means."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Spread:
    """Of ten published rates, one lies below low times the predicted one, one above high times it."""

    low: float
    high: float


@dataclass(frozen=True)
class ClassDecode:
    """How a class of devices differs from all of them: factors, so 1 is no difference."""

    excess: float
    layer: float
    spread: Spread
    n_devices: int  # with published rates


@dataclass(frozen=True)
class DeviceDecode:
    """How a device differs from its class, as far as its own published rates carry that."""

    excess: float  # factor
    n_rates: int


@dataclass(frozen=True)
class Decode:
    """The coefficients of `efficiency.decode_rate`."""

    excess: float  # time beyond bytes / bandwidth, as a share of it, at 500 GB/s and in 2023
    bandwidth_exponent: float
    year_factor: float  # of the excess, a year
    first_year: int
    last_year: int  # of the fitted devices
    layer_s: float  # a layer and token, whatever its bytes
    mlx: float  # factor of both on an Apple device, for weights in MLX's formats
    classes: dict[str, ClassDecode]
    devices: dict[str, DeviceDecode]
    spread: Spread  # where the class is not known


@dataclass(frozen=True)
class DevicePrefill:
    """A device's published prefill rates."""

    flops_s: float  # their median, of a dense model
    n_rates: int


@dataclass(frozen=True)
class Scale:
    """Prefill FLOP/s from one figure of the data sheet: a ratio a class, and the spread of what was left out."""

    classes: dict[str, float]
    any_class: float
    spread: Spread
    n_devices: int
    median_error: float  # relative, for devices left out


@dataclass(frozen=True)
class Prefill:
    """The coefficients of `prefill.prefill_flops_s`."""

    moe_factor: float  # a mixture of experts reaches this share of a dense model's FLOP/s
    devices: dict[str, DevicePrefill]
    device_spread: Spread  # of one device's rates around the median of its others
    by_matrix_rate: Scale  # of `prefill.reach_flops_s`
    by_bandwidth: Scale  # FLOP/s for each byte/s


@dataclass(frozen=True)
class Coefficients:
    """All that was fitted."""

    decode: Decode
    prefill: Prefill


@functools.cache
def load_coefficients() -> Coefficients:
    """The coefficients that come with tokenroof."""
    text = resources.files("harness.prediction").joinpath("coefficients.json").read_text(encoding="utf-8")
    document = json.loads(text)
    decode, prefill = document["decode"], document["prefill"]
    classes = {
        name: ClassDecode(**{**values, "spread": Spread(**values["spread"])})
        for name, values in decode.pop("classes").items()
    }
    devices = {name: DeviceDecode(**values) for name, values in decode.pop("devices").items()}
    return Coefficients(
        Decode(**{**decode, "classes": classes, "devices": devices, "spread": Spread(**decode["spread"])}),
        Prefill(
            moe_factor=prefill["moe_factor"],
            devices={name: DevicePrefill(**values) for name, values in prefill["devices"].items()},
            device_spread=Spread(**prefill["device_spread"]),
            by_matrix_rate=_scale(prefill["by_matrix_rate"]),
            by_bandwidth=_scale(prefill["by_bandwidth"]),
        ),
    )


def _scale(values: dict[str, object]) -> Scale:
    return Scale(**{**values, "spread": Spread(**values["spread"])})  # type: ignore[arg-type]
