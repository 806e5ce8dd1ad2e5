"""Graphics cards from a tree like Linux's /sys/bus/pci/devices."""

import sys
from pathlib import Path

import pytest

from harness.machine import pci

# Lines as in libdrm's amdgpu.ids and in the PCI ID list.
AMDGPU_IDS = """# device_id,\trevision_id,\tproduct_name
744C,\tC8,\tAMD Radeon RX 7900 XTX
744C,\tCC,\tAMD Radeon RX 7900 XT
"""
PCI_IDS = """# comment
1002  Advanced Micro Devices, Inc. [AMD/ATI]
\te20b  not Intel's
8086  Intel Corporation
\t56a0  DG2 [Arc A770]
\t\t8086 1020  a card maker's name
# comment
\te20b  Battlemage G21 [Arc B580]
10de  NVIDIA Corporation
\t2b85  GB202 [GeForce RTX 5090]
"""


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "amdgpu.ids").write_text(AMDGPU_IDS)
    (tmp_path / "pci.ids").write_text(PCI_IDS)
    monkeypatch.setattr(pci, "_AMD_NAMES", (tmp_path / "none", tmp_path / "amdgpu.ids"))
    monkeypatch.setattr(pci, "_PCI_NAMES", (tmp_path / "none", tmp_path / "pci.ids"))
    monkeypatch.setattr(pci, "_DEVICES", tmp_path / "devices")
    return tmp_path / "devices"


def _plug(bus: Path, address: str, **files: str) -> None:
    (bus / address).mkdir(parents=True)
    for name, text in files.items():
        (bus / address / name).write_text(f"{text}\n")


def _display(vendor: str, device: str, revision: str = "0x00", **more: str) -> dict[str, str]:
    return {"class": "0x030000", "vendor": vendor, "device": device, "revision": revision} | more


@pytest.mark.skipif(sys.platform == "win32", reason="Windows allows no colon in a file name")
def test_cards_are_named_as_their_vendors_do(bus: Path) -> None:
    _plug(bus, "0000:00:02.0", **_display("0x8086", "0x46a6"))
    _plug(bus, "0000:03:00.0", **_display("0x8086", "0xe20b"))
    _plug(bus, "0000:0a:00.0", **_display("0x1002", "0x744c", "0xc8", mem_info_vram_total=str(24 * 2**30)))
    _plug(bus, "0000:0b:00.0", **_display("0x1002", "0x740f", product_name="AMD Instinct MI210"))
    _plug(bus, "0000:0c:00.0", **_display("0x10de", "0x2b85"))
    _plug(bus, "0000:0d:00.0", **_display("0x1002", "0x0001", mem_info_vram_total="not a number"))
    _plug(bus, "0000:0e:00.0", **_display("0x8086", "0x1533") | {"class": "0x020000"})  # a network card
    _plug(bus, "0000:0f:00.0", **_display("0x1a03", "0x2000"))  # a server's console
    _plug(bus, "0000:10:00.0")  # nothing may be read
    assert pci.cards() == [
        pci.Card("intel", None, None, integrated=True),
        pci.Card("intel", "Arc B580", None, integrated=False),
        pci.Card("amd", "AMD Radeon RX 7900 XTX", 24 * 2**30, integrated=False),
        pci.Card("amd", "AMD Instinct MI210", None, integrated=False),
        pci.Card("nvidia", "GeForce RTX 5090", None, integrated=False),
        pci.Card("amd", None, None, integrated=False),
    ]


def test_a_system_without_the_tree_has_no_cards(bus: Path) -> None:
    assert pci.cards() == []
    assert not bus.exists()
