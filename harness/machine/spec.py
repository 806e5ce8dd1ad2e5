"""A machine's device in the catalog, and the bandwidth that its vendor states."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.machine.catalog import AmbiguousDeviceError, match

if TYPE_CHECKING:
    from harness.machine.device import Device
    from harness.machine.hardware import Gpu, Machine

# How far the driver's figure may lie above the catalog's and be taken for it: vendors print 4800 GB/s for an H200 whose
# memory runs at 4917, 7700 for a B200 at 8184. Below that they are the same number; above it, one of them is wrong.
_SAME = 1.005
_BELIEVED = 1.10


def catalog_device(
    machine: Machine, device_name: str | None = None, device_memory_bytes: int | None = None
) -> Device | None:
    """The catalog's entry for a device of this machine.

    Args:
        machine: as `hardware.inspect` gives it.
        device_name: the accelerator's, as an engine or a driver gives it; None: the CPU, whose memory is in the
            catalog where it is part of the chip.
        device_memory_bytes: the accelerator's total memory as an engine gives it.

    Returns:
        The entry, or None where the catalog has none.

    Raises:
        AmbiguousDeviceError: the name is that of several devices, and what tells them apart cannot be read here.
    """
    gpu = _gpu(machine, device_name)
    if device_name is None or (gpu is not None and gpu.vendor == "apple"):
        memory_bytes: int | None = machine.ram_bytes
    else:
        memory_bytes = device_memory_bytes or (gpu.memory_bytes if gpu else None)
    # Every Orin is "Orin" to torch, and the CPU of a GB10 is "Cortex-X925": the GPU's or the board's name says more.
    for name in (device_name or machine.cpu, gpu.name if gpu else None, machine.board):
        device = name and match(
            name,
            memory_bytes=memory_bytes,
            gpu_cores=gpu.cores if gpu else None,
            power_mode=machine.power_mode,
        )
        if device and (device_name or device.unified):
            return device
    return None


def spec_bandwidth(
    machine: Machine, device_name: str | None = None, device_memory_bytes: int | None = None
) -> tuple[int | None, str]:
    """Peak memory bandwidth of a device of this machine by its vendor's figures.

    The catalog's, unless the driver's bus width × memory clock is a little larger; the driver's alone where the catalog
    lacks the device.

    Args:
        machine: as `hardware.inspect` gives it.
        device_name: the accelerator's, as an engine or a driver gives it; None: the CPU.
        device_memory_bytes: the accelerator's total memory as an engine gives it.

    Returns:
        Bytes a second and where the figure is from ("catalog rtx-5090", "NVML 384 bit × 10501 MHz × 2"), or None and
        why there is none.
    """
    try:
        device = catalog_device(machine, device_name, device_memory_bytes)
        why = f"{device_name} is not in the catalog, and its driver tells no memory clock"
    except AmbiguousDeviceError as error:
        device, why = None, str(error)
    gpu = _gpu(machine, device_name) if device_name else None
    driver = gpu.bandwidth_bytes_s if gpu else None
    stated = device.bandwidth_bytes_s if device else None
    if gpu and gpu.bandwidth_source and driver and (stated is None or _SAME < driver / stated < _BELIEVED):
        return driver, gpu.bandwidth_source
    if device and stated:
        return stated, f"catalog {device.id}"
    if device_name is None:
        why = "no vendor figure for this CPU's memory: only root may read its speed (dmidecode -t memory)"
    return None, why


def _gpu(machine: Machine, device_name: str | None) -> Gpu | None:
    """The machine's GPU of that name, else its only one."""
    named = [gpu for gpu in machine.gpus if gpu.name == device_name]
    return named[0] if named else machine.gpus[0] if len(machine.gpus) == 1 else None
