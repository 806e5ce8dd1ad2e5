"""What a prediction is for: a device of the catalog, or one known by its bandwidth and capacity alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.machine.catalog import find, load_catalog, usable_bytes
from harness.prediction.hardware import Hardware, from_device
from harness.roofline.ceiling import Memory

if TYPE_CHECKING:
    from harness.machine.device import Device

_LEAST, _LARGEST = 1e-3, 1e6  # of a bandwidth in GB/s, which `Memory` wants to be 1e6 bytes/s; of a capacity in GB


@dataclass(frozen=True)
class Target:
    """One device as a prediction sees it."""

    name: str
    device_id: str | None  # in the catalog
    hardware: Hardware | None  # None: its bandwidth is not known
    capacity_bytes: int | None  # that a model can use; None: not known, as of system memory
    link_bytes_s: float | None  # to the host's memory, one way; None: host memory is all it has, or not known
    matrix_flops_s: float | None  # the vendor's peak for the weights' format

    @property
    def memory(self) -> Memory:
        """For a ceiling."""
        if self.hardware is None:
            raise ValueError(f"the bandwidth of {self.name} is not known")
        return Memory(self.name, self.hardware.bandwidth_bytes_s, self.matrix_flops_s)


def targets(
    names: str | None, weight_format: str, bandwidth_gbs: float | None, capacity_gb: float | None
) -> list[Target]:
    """The devices of one request.

    Args:
        names: catalog ids or names, separated by commas, or "all"; None: a device that only the next two describe.
        weight_format: decides which of the vendor's matrix rates counts.
        bandwidth_gbs: memory bandwidth in GB/s of a device that is not in the catalog.
        capacity_gb: GB that a model can use, in place of what the catalog says.

    Raises:
        UserError: a name matches nothing or several devices, or a number makes no sense.
    """
    capacity = None if capacity_gb is None else round(_sensible("--capacity", capacity_gb) * 1e9)
    if names is None:
        if bandwidth_gbs is None:
            raise UserError('for which device? --on "RTX 5090,M5 Ultra", --on all, or --bandwidth and --capacity in GB')
        bandwidth = _sensible("--bandwidth", bandwidth_gbs)
        name = f"{bandwidth:g} GB/s" + ("" if capacity_gb is None else f", {capacity_gb:g} GB")
        return [Target(name, None, Hardware(bandwidth * 1e9), capacity, None, None)]
    if bandwidth_gbs is not None:
        raise UserError("--bandwidth is for a device that is not in the catalog; leave out it or --on")
    devices = load_catalog() if names.strip().lower() == "all" else [find(name) for name in names.split(",")]
    chosen = [target_of(device, weight_format) for device in dict.fromkeys(devices)]
    return [replace(target, capacity_bytes=capacity) for target in chosen] if capacity is not None else chosen


def host_memory(name: str) -> Target:
    """The system memory that takes what a GPU cannot hold.

    Raises:
        UserError: there is no such device, it is no system memory, or its bandwidth is not known.
    """
    device = find(name)
    if device.kind not in ("memory", "cpu"):
        raise UserError(f"--host {name}: {device.name} is no system memory; give one such as ddr5-6000-2ch")
    target = target_of(device, "f32")
    if target.hardware is None:
        raise UserError(f"--host {name}: the bandwidth of {target.name} is not known")
    return target


def target_of(device: Device, weight_format: str) -> Target:
    """A device of the catalog."""
    return Target(
        name=device.name,
        device_id=device.id,
        hardware=None if device.bandwidth_bytes_s is None else from_device(device),
        capacity_bytes=usable_bytes(device),
        link_bytes_s=None if device.unified or not device.host_link_gbs else device.host_link_gbs * 1e9,
        matrix_flops_s=device.flops_s(weight_format),
    )


def _sensible(flag: str, value: float) -> float:
    if not _LEAST <= value <= _LARGEST:
        raise UserError(f"{flag} {value:g}: give a number from {_LEAST:g} to {_LARGEST:g}")
    return value
