"""Graphics cards on the PCI bus, as Linux shows them without any driver's library; none on other systems."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_DEVICES = Path("/sys/bus/pci/devices")
_VENDORS: dict[str, Literal["amd", "intel", "nvidia"]] = {"0x1002": "amd", "0x8086": "intel", "0x10de": "nvidia"}
_DISPLAY = ("0x03", "0x12")  # PCI base classes: display controller, processing accelerator (Instinct)
# Names: libdrm's list tells AMD's products apart by revision; the PCI list knows the others.
_AMD_NAMES = (Path("/usr/share/libdrm/amdgpu.ids"), Path("/opt/amdgpu/share/libdrm/amdgpu.ids"))
_PCI_NAMES = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))


@dataclass(frozen=True)
class Card:
    """One graphics card."""

    vendor: Literal["amd", "intel", "nvidia"]
    name: str | None  # None where neither the kernel nor a list of names tells
    memory_bytes: int | None  # None where the driver does not tell; only amdgpu does
    integrated: bool  # on the root bus, as a processor's own graphics are


def cards() -> list[Card]:
    """Every display controller of a GPU vendor, in the bus's order."""
    found = []
    for device in sorted(_DEVICES.glob("*")):
        vendor = _VENDORS.get(_read(device / "vendor"))
        if vendor and _read(device / "class").startswith(_DISPLAY):
            memory = _read(device / "mem_info_vram_total")
            integrated = vendor == "intel" and device.name.startswith("0000:00:")
            found.append(Card(vendor, _name(device, vendor), int(memory) if memory.isdigit() else None, integrated))
    return found


def _name(device: Path, vendor: str) -> str | None:
    if name := _read(device / "product_name"):
        return name
    vendor_id, device_id, revision = (_read(device / file)[2:] for file in ("vendor", "device", "revision"))
    if vendor == "amd":
        return _amd_name(device_id, revision)
    return _pci_name(vendor_id, device_id)


def _amd_name(device_id: str, revision: str) -> str | None:
    """Of a line "744C,	C8,	AMD Radeon RX 7900 XTX"."""
    line = re.compile(rf"^{re.escape(device_id)},\s*{re.escape(revision)},\s*(.+)$", re.IGNORECASE | re.MULTILINE)
    found = [match[1].strip() for path in _AMD_NAMES if (match := line.search(_read(path)))]
    return found[0] if found else None


def _pci_name(vendor_id: str, device_id: str) -> str | None:
    """Of a line "	e20b  Battlemage G21 [Arc B580]" below its vendor's: what stands in brackets, or all of it."""
    section = re.compile(rf"^{re.escape(vendor_id)}  .*\n((?:[\t#].*(?:\n|\Z)|\n)*)", re.MULTILINE)
    line = re.compile(rf"^\t{re.escape(device_id)}  (.+)$", re.MULTILINE)
    for path in _PCI_NAMES:
        if (of_vendor := section.search(_read(path))) and (match := line.search(of_vendor[1])):
            brackets = re.search(r"\[(.+)\]", match[1])
            return brackets[1] if brackets else match[1]
    return None


def _read(path: Path) -> str:
    """A file's text; empty where there is none or it may not be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8").strip()
    return ""
