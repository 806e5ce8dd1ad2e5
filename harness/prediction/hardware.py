"""What a prediction knows of a device, and the range that it answers with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harness.machine.device import Device

# Device classes, and how a sentence names them.
CLASS_NAMES = {
    "apple": "Apple",
    "unified": "NVIDIA and AMD chips with unified memory",
    "nvidia": "NVIDIA cards with GDDR memory",
    "nvidia-hbm": "NVIDIA GPUs with HBM",
    "amd": "AMD GPUs",
    "intel": "Intel GPUs",
    "cpu": "CPUs",
}


@dataclass(frozen=True)
class Hardware:
    """A device as its data sheet shows it; None where that is not known."""

    bandwidth_bytes_s: float
    device_class: str | None = None  # a key of CLASS_NAMES
    release_year: int | None = None
    device_id: str | None = None  # of the catalog
    fp16_flops_s: float | None = None  # peak matrix rate in FP16 with FP32 accumulation
    peak_flops_s: float | None = None  # the larger of that and INT8, in which quantised weights compute

    def __post_init__(self) -> None:
        if not self.bandwidth_bytes_s > 0:
            raise ValueError(f"bandwidth_bytes_s is {self.bandwidth_bytes_s!r}, not above 0")
        if self.device_class is not None and self.device_class not in CLASS_NAMES:
            raise ValueError(f"device_class is {self.device_class!r}, none of {', '.join(CLASS_NAMES)}")


@dataclass(frozen=True)
class Range:
    """A realistic range: eight of ten published rates lie from low to high, half of them above mid."""

    low: float
    mid: float
    high: float
    basis: str  # where it comes from, in words

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.mid <= self.high:
            raise ValueError(f"{self.low!r}, {self.mid!r}, {self.high!r} is no range")


def from_device(device: Device) -> Hardware:
    """What the catalog says.

    Raises:
        ValueError: the catalog does not know the device's bandwidth.
    """
    if device.bandwidth_bytes_s is None:
        raise ValueError(f"bandwidth_gbs of {device.id} is not known")
    return Hardware(
        bandwidth_bytes_s=device.bandwidth_bytes_s,
        device_class=device_class(device),
        release_year=device.release_year,
        device_id=device.id,
        fp16_flops_s=device.flops_s("f16"),
        peak_flops_s=device.flops_s("q4_0"),
    )


def device_class(device: Device) -> str | None:
    """The key of `CLASS_NAMES` that a device belongs to; None for a GPU of another vendor."""
    if device.kind in {"cpu", "memory"}:
        return "cpu"
    if device.vendor == "Apple":
        return "apple"
    if device.kind == "soc":
        return "unified"
    if device.vendor == "NVIDIA":
        return "nvidia-hbm" if device.memory_type.startswith("HBM") else "nvidia"
    return {"AMD": "amd", "Intel": "intel"}.get(device.vendor)
