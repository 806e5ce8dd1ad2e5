"""`tokenroof devices`: the catalog, and one device of it."""

import csv
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from harness.machine.catalog import load_catalog

Devices = Callable[..., Any]


@pytest.fixture
def devices(command: Devices) -> Devices:
    return partial(command, "devices", COLUMNS="160")


def test_every_device_is_listed_with_memory_and_bandwidth(devices: Devices) -> None:
    result = devices()
    assert result.returncode == 0, result.stderr
    listed = {line.split()[0]: line for line in result.stdout.splitlines() if line.strip()}
    assert {device.id for device in load_catalog()} <= set(listed)
    assert listed["rtx-5090"].split()[-8:] == ["32", "GB", "1792", "GB/s", "PCIe", "5.0", "x16", "2025"]
    assert "819.2 GB/s" in listed["apple-m2-ultra"]


def test_one_device_is_explained(devices: Devices) -> None:
    lines = dict(line.split(maxsplit=1) for line in devices("DGX Spark").stdout.splitlines())
    assert lines["id"] == "dgx-spark-gb10"
    assert lines["memory"] == "128 GB LPDDR5X, shared by CPU and GPU"
    assert lines["bandwidth"] == "273.1 GB/s (256 bit × 8.533 GT/s, which NVIDIA rounds to 273 GB/s)"
    assert lines["usable"] == "124 GB of 137 GB (of 10^9 bytes) for weights and KV cache"  # 90 % of 128 GiB
    assert lines["source"].startswith("https://")
    assert lines["notes"]


def test_programs_get_every_column(devices: Devices) -> None:
    objects = json.loads(devices("--format", "json").stdout)
    assert [one["id"] for one in objects] == [device.id for device in load_catalog()]
    one = json.loads(devices("rubin", "--format", "json").stdout)
    assert one["bandwidth_bytes_s"] == 22_000_000_000_000
    assert one["fp4_dense_tflops"] == 35_000
    (row,) = csv.DictReader(devices("m4 max 40", "--format", "csv").stdout.splitlines())
    assert row["memory_options_gb"] == "48 64 128"
    assert row["bandwidth_bytes_s"] == "546112000000"


@pytest.mark.parametrize("arguments", [(), ("RTX 5090",)])
def test_markdown_is_a_table(arguments: tuple[str, ...], devices: Devices) -> None:
    lines = devices(*arguments, "--format", "md").stdout.splitlines()
    assert set(lines[1]) <= set("|- ")
    assert len({line.count("|") - line.count(r"\|") for line in lines}) == 1
    assert any("rtx-5090" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "message"),
    [("RTX 3080", "give the memory size or the id"), ("RTX 5900", "near it: GeForce RTX 5090"), ("", "no device")],
)
def test_a_name_that_is_not_one_device_is_one_line(name: str, message: str, devices: Devices) -> None:
    result = devices(name)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr
