"""The device catalog against published figures and the names that drivers were seen to give."""

import contextlib
import csv
import io
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.machine.catalog import (
    AmbiguousDeviceError,
    Device,
    find,
    load_catalog,
    match,
    metal_working_set_bytes,
    usable_bytes,
)
from harness.machine.devices_file import read_devices

TEXT = resources.files("harness.machine").joinpath("devices.csv").read_text(encoding="utf-8")
ROWS = list(csv.DictReader(TEXT.splitlines()))
DEVICES = {device.id: device for device in load_catalog()}
GIB = 2**30

# What the driver calls each device, as seen in public logs. GeForce cards: "NVIDIA" and the name without the size.
DRIVER_NAMES = {
    "rtx-5090-d-v2": "NVIDIA GeForce RTX 5090 D v2",
    "rtx-pro-6000-blackwell": "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
    "rtx-pro-6000-blackwell-maxq": "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
    "rtx-pro-6000-blackwell-server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "a10": "NVIDIA A10",
    "a10g": "NVIDIA A10G",
    "a100-40gb-pcie": "NVIDIA A100-PCIE-40GB",
    "a100-40gb-sxm": "NVIDIA A100-SXM4-40GB",
    "a100-80gb-pcie": "NVIDIA A100 80GB PCIe",
    "a100-80gb-sxm": "NVIDIA A100-SXM4-80GB",
    "rtx-a6000": "NVIDIA RTX A6000",
    "rtx-6000-ada": "NVIDIA RTX 6000 Ada Generation",
    "l4": "NVIDIA L4",
    "l40s": "NVIDIA L40S",
    "t4": "Tesla T4",
    "v100-sxm2-16gb": "Tesla V100-SXM2-16GB",
    "v100-sxm2-32gb": "Tesla V100-SXM2-32GB",
    "v100-pcie-16gb": "Tesla V100-PCIE-16GB",
    "v100-pcie-32gb": "Tesla V100-PCIE-32GB",
    "v100s": "Tesla V100S-PCIE-32GB",
    "h100-sxm": "NVIDIA H100 80GB HBM3",
    "h100-pcie": "NVIDIA H100 PCIe",
    "h100-nvl": "NVIDIA H100 NVL",
    "h200-sxm": "NVIDIA H200",
    "h200-nvl": "NVIDIA H200 NVL",
    "gh200-96gb": "NVIDIA GH200 480GB",
    "gh200-144gb": "NVIDIA GH200 144G HBM3e",
    "b200": "NVIDIA B200",
    "gb200": "NVIDIA GB200",
    "b300": "NVIDIA B300 SXM6 AC",
    "gb300": "NVIDIA GB300",
    "dgx-station-gb300": "NVIDIA GB300",
    "dgx-spark-gb10": "NVIDIA GB10",
    "jetson-agx-orin-64gb": "NVIDIA Jetson AGX Orin Developer Kit",
    "jetson-thor": "NVIDIA Thor",
    "jetson-orin-nano-super": "NVIDIA Jetson Orin Nano Engineering Reference Developer Kit Super",
    "jetson-orin-nano": "NVIDIA Jetson Orin Nano Developer Kit",
    "rx-7900-xtx": "AMD Radeon RX 7900 XTX",
    "rx-9070-xt": "AMD Radeon RX 9070 XT",
    "radeon-pro-w7900": "AMD Radeon Pro W7900",
    "radeon-ai-pro-r9700": "AMD Radeon AI PRO R9700",
    "mi210": "AMD Instinct MI210",
    "mi250x-gcd": "AMD Instinct MI250X",
    "mi300x": "AMD Instinct MI300X OAM",
    "mi325x": "AMD Instinct MI325X",
    "mi355x": "AMD Instinct MI355X",
    "strix-halo-395": "AMD RYZEN AI MAX+ 395 w/ Radeon 8060S",
    "arc-a770-16gb": "Intel(R) Arc(TM) A770 Graphics",
    "arc-b580": "Intel(R) Arc(TM) B580 Graphics",
    "arc-pro-b60": "Intel(R) Arc(TM) Pro B60 Graphics",
    "raspberry-pi-5": "Raspberry Pi 5 Model B Rev 1.0",
}
# The second key where a name is shared: what the driver reports for each.
SECOND_KEYS = {
    "rtx-5060-ti-16gb": {"memory_bytes": 16311 * 2**20},
    "rtx-5060-ti-8gb": {"memory_bytes": 8151 * 2**20},
    "rtx-4060-ti-16gb": {"memory_bytes": 16380 * 2**20},
    "rtx-4060-ti-8gb": {"memory_bytes": 8188 * 2**20},
    "rtx-3080": {"memory_bytes": 10240 * 2**20},
    "rtx-3080-12gb": {"memory_bytes": 12288 * 2**20},
    "rtx-3060-12gb": {"memory_bytes": 12288 * 2**20},
    "rtx-3060-8gb": {"memory_bytes": 8192 * 2**20},
    "gb300": {"memory_bytes": 284208 * 2**20},
    "dgx-station-gb300": {"memory_bytes": 252 * GIB},
    "jetson-orin-nano-super": {"power_mode": "MAXN_SUPER"},
    "jetson-orin-nano": {"power_mode": "15W"},
    "apple-m3-max-30": {"gpu_cores": 30},
    "apple-m3-max-40": {"gpu_cores": 40},
    "apple-m4-max-32": {"gpu_cores": 32},
    "apple-m4-max-40": {"gpu_cores": 40},
    "apple-m5-max-32": {"gpu_cores": 32},
    "apple-m5-max-40": {"gpu_cores": 40},
    "apple-m6-16gb": {"memory_bytes": 16 * GIB},
    "apple-m6": {"memory_bytes": 24 * GIB},
}


def _driver_name(device: Device) -> str:
    if device.id in DRIVER_NAMES:
        return DRIVER_NAMES[device.id]
    bare = device.name.split(" (")[0]
    if device.vendor == "Apple":
        return bare
    assert bare.startswith("GeForce"), device.id
    words = bare.split()
    return " ".join(["NVIDIA", *(words[:-2] if words[-1] == "GB" else words)])


def _with(row: str, **cells: str) -> io.StringIO:
    """The catalog with some cells of one row replaced."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, ROWS[0])
    writer.writeheader()
    writer.writerows(each | cells if each["id"] == row else each for each in ROWS)
    out.seek(0)
    return out


def test_the_catalog_is_whole() -> None:
    assert len(DEVICES) == len(load_catalog()) == len(ROWS) == 116
    assert all(device.source.startswith("http") for device in load_catalog())
    assert [device.id for device in load_catalog() if device.bandwidth_bytes_s is None] == ["gh200-144gb"]


@pytest.mark.parametrize("device", load_catalog(), ids=lambda device: device.id)
def test_bus_times_rate_is_the_bandwidth(device: Device) -> None:
    if device.memory_bus_bits and device.memory_rate_gtps and device.bandwidth_gbs:
        by_bus = device.memory_bus_bits / 8 * device.memory_rate_gtps
        assert by_bus == pytest.approx(device.bandwidth_gbs, rel=0.025)  # Apple's and AMD's 2.4 % is the widest
        assert device.bandwidth_bytes_s == pytest.approx(max(by_bus, device.bandwidth_gbs) * 1e9, abs=1)


def test_the_larger_figure_is_the_ceilings() -> None:
    assert DEVICES["apple-m2-ultra"].bandwidth_bytes_s == 819_200_000_000
    assert "Apple rounds to 800 GB/s" in DEVICES["apple-m2-ultra"].bandwidth_source
    assert DEVICES["v100-pcie-16gb"].bandwidth_bytes_s == 900_000_000_000  # 897 by bus × rate
    assert DEVICES["v100-pcie-16gb"].bandwidth_source == "NVIDIA's figure"
    assert DEVICES["rubin-vr200"].bandwidth_bytes_s == 22 * 10**12
    ratio = (DEVICES["apple-m5-ultra"].bandwidth_bytes_s or 0) / (DEVICES["dgx-spark-gb10"].bandwidth_bytes_s or 1)
    assert ratio == pytest.approx(4.4, abs=0.15)


def test_matrix_rates_follow_the_format() -> None:
    rtx_4090, t4, spark = DEVICES["rtx-4090"], DEVICES["t4"], DEVICES["dgx-spark-gb10"]
    assert rtx_4090.flops_s("bf16") == rtx_4090.flops_s("f16") == pytest.approx(165.2e12)
    assert rtx_4090.flops_s("q4_k_m") == pytest.approx(660.6e12)  # INT8, as MMQ computes
    assert DEVICES["b300"].flops_s("q8_0") == pytest.approx(2250e12)  # its INT8 units are fewer than its FP16
    assert t4.flops_s("bf16") is None
    assert rtx_4090.flops_s("f32") is None
    assert spark.flops_s("f16") is spark.flops_s("q4_0") is spark.flops_s("fp8") is None
    assert spark.flops_s("nvfp4") == spark.flops_s("mxfp4") == pytest.approx(500e12)
    b200 = DEVICES["b200"]
    assert [b200.flops_s(name) for name in ("f16", "fp8", "mxfp4", "mxfp4_bf16", "nvfp4")] == pytest.approx(
        [2250e12, 4500e12, 9000e12, 9000e12, 9000e12]
    )
    assert DEVICES["h100-sxm"].flops_s("nvfp4") == pytest.approx(1979e12)  # has no FP4 units


@pytest.mark.parametrize("device", [it for it in load_catalog() if it.match_regex], ids=lambda it: it.id)
def test_a_driver_means_exactly_this_device(device: Device) -> None:
    assert match(_driver_name(device), **SECOND_KEYS.get(device.id, {})) is device


@pytest.mark.parametrize("identifier", SECOND_KEYS)
def test_a_shared_name_without_its_second_key_is_refused(identifier: str) -> None:
    with pytest.raises(AmbiguousDeviceError) as caught:
        match(_driver_name(DEVICES[identifier]))
    assert DEVICES[identifier] in caught.value.candidates
    key = next(iter(SECOND_KEYS[identifier]))
    words = {"memory_bytes": "memory size", "gpu_cores": "GPU cores", "power_mode": "power mode"}
    assert words[key] in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 3080 Laptop GPU",
        "NVIDIA GeForce RTX 3060 Ti",
        "NVIDIA GeForce RTX 4080 Laptop GPU",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA A100X",
        "Intel(R) Arc(TM) A770M Graphics",
        "AMD Radeon RX 7900 XT",
        "AMD Radeon Graphics",
        "Apple M7",
        "AMD EPYC 9654",
        "",
    ],
)
def test_a_name_that_the_catalog_lacks_matches_nothing(name: str) -> None:
    assert match(name) is None


def test_memory_tells_a_macs_bin_where_the_cores_are_not_known() -> None:
    assert match("Apple M4 Max", memory_bytes=36 * GIB) is DEVICES["apple-m4-max-32"]
    assert match("Apple M3 Max", memory_bytes=96 * GIB) is DEVICES["apple-m3-max-30"]
    assert match("Apple M3 Max", memory_bytes=64 * GIB) is DEVICES["apple-m3-max-40"]
    assert match("Apple M4 Max", gpu_cores=38) is None
    assert match("NVIDIA GeForce RTX 3080", memory_bytes=20 * GIB) is None  # a rebuilt card
    assert match("NVIDIA GeForce RTX 4090", memory_bytes=48 * GIB) is DEVICES["rtx-4090"]  # one row bears the name


@pytest.mark.parametrize(
    ("text", "identifier"),
    [
        ("RTX 5090", "rtx-5090"),
        ("rtx 5090 d", "rtx-5090-d"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "rtx-5090-laptop"),
        ("DGX Spark", "dgx-spark-gb10"),
        ("gb10", "dgx-spark-gb10"),
        ("M5 Ultra", "apple-m5-ultra"),
        ("Rubin", "rubin-vr200"),
        ("M4", "apple-m4"),
        ("M4 Max 40", "apple-m4-max-40"),
        ("M3 Max 96 GB", "apple-m3-max-30"),
        ("RTX 3080 12GB", "rtx-3080-12gb"),
        ("3080 ti", "rtx-3080-ti"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("strix halo", "strix-halo-395"),
        ("Pi 5", "raspberry-pi-5"),
        ("7900 XTX", "rx-7900-xtx"),
        ("rtx5090", "rtx-5090"),
        ("5070ti", "rtx-5070-ti"),
        ("rx7900xtx", "rx-7900-xtx"),
        ("m4max40", "apple-m4-max-40"),
        ("RTX PRO 6000 Max-Q", "rtx-pro-6000-blackwell-maxq"),
        ("rtx pro 6000 maxq", "rtx-pro-6000-blackwell-maxq"),
        ("H100 PCIe", "h100-pcie"),
        ("MI300X", "mi300x"),
        ("Jetson Thor", "jetson-thor"),
        ("Arc B580", "arc-b580"),
        ("W7900", "radeon-pro-w7900"),
    ],
)
def test_what_a_person_types_is_found(text: str, identifier: str) -> None:
    assert find(text).id == identifier
    assert find(f"  {text.upper()} ").id == identifier


@pytest.mark.parametrize("device", load_catalog(), ids=lambda device: device.id)
def test_every_id_and_name_finds_its_own_device(device: Device) -> None:
    assert find(device.id) is find(device.name) is device


@pytest.mark.parametrize(
    ("text", "candidates"),
    [
        ("RTX 3080", {"rtx-3080", "rtx-3080-12gb"}),
        ("M4 Max", {"apple-m4-max-32", "apple-m4-max-40"}),
        ("Orin Nano", {"jetson-orin-nano", "jetson-orin-nano-super"}),
        ("H100", {"h100-sxm", "h100-pcie", "h100-nvl"}),
        ("A100 80 GB", {"a100-80gb-sxm", "a100-80gb-pcie"}),
    ],
)
def test_several_devices_are_listed_and_asked_for(text: str, candidates: set[str]) -> None:
    with pytest.raises(AmbiguousDeviceError) as caught:
        find(text)
    assert {device.id for device in caught.value.candidates} == candidates
    assert all(identifier in str(caught.value) for identifier in candidates)


@pytest.mark.parametrize(
    ("text", "near"), [("RTX 5900", "GeForce RTX 5090"), ("m5 ultr", "Apple M5 Ultra"), ("dgx sparc", "DGX Spark")]
)
def test_a_slip_gets_the_nearest_names(text: str, near: str) -> None:
    with pytest.raises(UserError, match=f'no device "{text}".*{near}'):
        find(text)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("RTX 2080", "GeForce RTX 2080 Ti"),
        ("RTX 4070 SUPER", "GeForce RTX 4070 Ti SUPER"),
        ("RTX 4070", "GeForce RTX 4070 Ti"),
        ("RTX 5060", "GeForce RTX 5060 Ti 16 GB"),
        ("rtx2080", "GeForce RTX 2080 Ti"),
        ("RX 9070", "Radeon RX 9070 XT"),
        ("RX 7900", "Radeon RX 7900 XTX"),
        ("RTX 4090 Mobile", "GeForce RTX 4090"),
        ("RTX 4090 Ti", "GeForce RTX 4090"),
        ("M4 40", "Apple M4 Max"),
    ],
)
def test_another_variant_is_not_the_answer(text: str, near: str) -> None:
    with pytest.raises(UserError, match=f'no device "{text}"; near it: .*{near}'):
        find(text)


# Words that make another device of the number before them.
VARIANTS = {"Ti", "SUPER", "XT", "XTX", "D", "V2", "Laptop", "Ultra", "Pro", "Max", "Ada", "NVL"}
VARIED = [
    (device, place)
    for device in load_catalog()
    for place, word in enumerate(device.name.split())
    if word in VARIANTS and any(digit in " ".join(device.name.split()[:place]) for digit in "0123456789")
]


@pytest.mark.parametrize(("device", "place"), VARIED, ids=lambda it: getattr(it, "id", str(it)))
def test_a_name_without_its_variant_never_finds_the_variant(device: Device, place: int) -> None:
    words = device.name.split()
    shorter = " ".join(words[:place] + words[place + 1 :])
    try:
        found = find(shorter)
    except UserError:
        return
    assert words[place] not in found.name.split()


@given(st.text(max_size=40))
def test_any_text_is_a_device_or_one_line(text: str) -> None:
    with contextlib.suppress(UserError):
        assert find(text) in load_catalog()


@pytest.mark.parametrize(
    ("gib", "seen_bytes"),
    [  # llama.cpp's logs, "recommendedMaxWorkingSetSize = 12713.12 MB" and so on, on macOS 26
        (16, 12_713.12e6), (24, 19_069.67e6), (32, 26_800.60e6), (36, 30_150.67e6),
        (48, 40_200.90e6), (64, 55_662.79e6), (128, 115_448.73e6), (512, 498_216.21e6),
    ],
)  # fmt: skip
def test_metals_working_set_is_what_macs_report(gib: int, seen_bytes: float) -> None:
    assert metal_working_set_bytes(gib * GIB) == pytest.approx(seen_bytes, rel=1e-4)


def test_usable_memory_is_less_than_an_engine_is_shown() -> None:
    shown = {  # CUDA's total on these, in public logs: llama.cpp's device list and torch's total_memory
        "rtx-5090": 32_109 * 2**20,
        "rtx-4090": 24_210 * 2**20,
        "dgx-spark-gb10": int(119.7 * GIB),
    }
    for identifier, total in shown.items():
        usable = usable_bytes(DEVICES[identifier])
        assert usable is not None
        assert 0.94 * total < usable < total
    assert usable_bytes(DEVICES["apple-m5-ultra"]) == 464 * GIB
    assert usable_bytes(DEVICES["strix-halo-395"]) == 96 * GIB
    assert usable_bytes(DEVICES["t4"]) == 14 * GIB  # 15 of 16 GiB are left by ECC
    assert usable_bytes(DEVICES["ddr5-6000-2ch"]) is None
    for device in load_catalog():
        assert (usable_bytes(device) or 0) < (device.memory_bytes or 1)


NUMBERS = [column for column in ROWS[0] if column.startswith(("memory_gb", "memory_bus", "memory_rate", "bandwidth"))]
NUMBERS += ["host_link_gbs", "fp16_dense_tflops", "int8_dense_tops", "release_year", "gpu_cores", "driver_memory_mib"]


@given(
    st.sampled_from([row["id"] for row in ROWS]),
    st.sampled_from(NUMBERS),
    st.one_of(
        st.text(st.characters(exclude_characters="0123456789", exclude_categories=["Cs"]), min_size=1, max_size=8),
        st.sampled_from(["-3", "0", "1e9", "nan", "inf", "1,5", "1_000", "99999999", " 8", "٣"]),
    ),
)
def test_a_broken_number_is_named_by_row_and_column(row: str, column: str, cell: str) -> None:
    with pytest.raises(UserError) as caught:
        read_devices(_with(row, **{column: cell}))
    assert f"row {row}, column {column}: {cell!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("row", "cells", "message"),
    [
        ("rtx-5090", {"bandwidth_gbs": "179.2"}, "row rtx-5090, column bandwidth_gbs: 179.2 GB/s, but .* 1792 GB/s"),
        ("rtx-5090", {"memory_gb": ""}, "row rtx-5090, column memory_gb"),
        ("rtx-5090", {"kind": "card"}, "row rtx-5090, column kind: 'card' is none of gpu, soc, cpu, memory"),
        ("rtx-5090", {"unified": "true"}, "row rtx-5090, column unified: 'true'"),
        ("rtx-5090", {"match_regex": "(RTX"}, "row rtx-5090, column match_regex: .* no regular expression"),
        ("rtx-5090", {"source": " "}, "row rtx-5090, column source: ' ' is empty"),
        ("rtx-5090-d", {"id": "rtx-5090"}, "row rtx-5090, column id"),
        ("rtx-5090-d", {"name": "GEFORCE RTX 5090"}, "row rtx-5090-d, column name: row rtx-5090 cannot be told"),
        ("rtx-3080-12gb", {"memory_gb": "10"}, "row rtx-3080-12gb, column match_regex: row rtx-3080 cannot be told"),
        ("apple-m4-max-40", {"gpu_cores": "32", "memory_options_gb": "36"}, "row apple-m4-max-40, column match_regex"),
    ],
)
def test_a_contradiction_is_named(row: str, cells: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_devices(_with(row, **cells))


def test_a_catalog_of_another_shape_is_refused() -> None:
    lines = TEXT.splitlines()
    with pytest.raises(UserError, match="header"):
        read_devices(lines[1:])
    with pytest.raises(UserError, match="header"):
        read_devices([])
    with pytest.raises(UserError, match=r"row rtx-5090: .*cells"):
        read_devices([lines[0], lines[1] + ",more"])
    with pytest.raises(UserError, match=r"row rtx-5090: .*cells"):
        read_devices([lines[0], "rtx-5090,GeForce RTX 5090"])
