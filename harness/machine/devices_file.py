"""Reading `devices.csv`: every cell is checked, and a wrong one is named by its row and column."""

from __future__ import annotations

import csv
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_args

from harness.errors import UserError
from harness.machine.device import Device, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_LARGEST_DIFFERENCE = 0.05  # between bus × rate and the vendor's figure: rounding is 2.4 % at most, a wrong unit is not


def read_devices(lines: Iterable[str]) -> tuple[Device, ...]:
    """The devices of a catalog.

    Args:
        lines: of a CSV whose header has the fields of `Device` in their order.

    Raises:
        UserError: the header is another, a cell holds what its column cannot mean, bus × rate contradicts the
            bandwidth, or two rows cannot be told apart.
    """
    reader = csv.DictReader(lines, strict=True)
    columns = [field.name for field in fields(Device)]
    try:
        if reader.fieldnames != columns:
            raise UserError(f"devices.csv: its header is not {','.join(columns)}")
        devices = tuple(_device(row) for row in reader)
    except csv.Error as error:
        raise UserError(f"devices.csv, line {reader.line_num}: {error}") from error
    _check_distinct(devices)
    return devices


def _device(row: dict[str, str]) -> Device:
    if None in row or None in row.values():
        raise UserError(f"devices.csv, row {row['id']}: it has not as many cells as the header")
    values = {}
    for column, text in row.items():
        try:
            values[column] = _COLUMNS[column](text)
        except ValueError as error:
            raise UserError(f"devices.csv, row {row['id']}, column {column}: {text!r} {error}") from error
    device = Device(**values)
    _check_memory(device)
    return device


def _check_memory(device: Device) -> None:
    if device.kind != "memory" and device.memory_gb is None:
        raise UserError(f"devices.csv, row {device.id}, column memory_gb: only a kind of system memory has no size")
    by_bus = device.bus_bandwidth_bytes_s
    if by_bus and device.bandwidth_gbs and abs(by_bus / (device.bandwidth_gbs * 1e9) - 1) > _LARGEST_DIFFERENCE:
        raise UserError(
            f"devices.csv, row {device.id}, column bandwidth_gbs: {device.bandwidth_gbs:g} GB/s, but memory_bus_bits × "
            f"memory_rate_gtps is {by_bus / 1e9:g} GB/s"
        )


def _check_distinct(devices: tuple[Device, ...]) -> None:
    for column, key in _DISTINCT.items():
        seen: dict[object, Device] = {}
        for device in devices:
            other = seen.setdefault(key(device), device)
            if other is not device:
                raise UserError(f"devices.csv, row {device.id}, column {column}: row {other.id} cannot be told from it")


_DISTINCT: dict[str, Callable[[Device], object]] = {
    "id": lambda device: device.id,
    "name": lambda device: device.name.lower(),
    # Devices of one name need a second key: memory size, GPU cores or power mode.
    "match_regex": lambda device: (
        (device.match_regex, device.memory_options_gb or device.memory_gb, device.gpu_cores, device.power_modes)
        if device.match_regex
        else device.id
    ),
}


def _text(cell: str) -> str:
    if not cell.strip():
        raise ValueError("is empty")
    return cell


def _identifier(cell: str) -> str:
    if not re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", cell):
        raise ValueError("is not lower-case words joined by hyphens")
    return cell


def _kind(cell: str) -> str:
    if cell not in get_args(Kind):
        raise ValueError(f"is none of {', '.join(get_args(Kind))}")
    return cell


def _yes(cell: str) -> bool:
    if cell not in {"yes", "no"}:
        raise ValueError("is neither yes nor no")
    return cell == "yes"


def _regex(cell: str) -> str:
    try:
        re.compile(cell)
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    return cell


def _number(low: float, high: float) -> Callable[[str], float]:
    def parse(cell: str) -> float:
        number = float(cell) if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", cell) else None
        if number is None or not low <= number <= high:
            raise ValueError(f"is no number from {low:g} to {high:g}")
        return number

    return parse


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(cell: str) -> int:
        if not re.fullmatch(r"[0-9]{1,9}", cell) or not low <= int(cell) <= high:
            raise ValueError(f"is no whole number from {low} to {high}")
        return int(cell)

    return parse


def _words(one: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    return lambda cell: tuple(one(word) for word in cell.split())


def _maybe(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    return lambda cell: parse(cell) if cell else None


# The limits hold for what a person can own or rent today, and catch a figure in another unit.
_RATE = _maybe(_number(1, 100_000))
_COLUMNS: dict[str, Callable[[str], Any]] = {
    "id": _identifier,
    "name": _text,
    "vendor": _text,
    "kind": _kind,
    "memory_type": _text,
    "memory_gb": _maybe(_number(1, 4096)),
    "memory_bus_bits": _maybe(_integer(16, 32_768)),
    "memory_rate_gtps": _maybe(_number(0.5, 100)),
    "bandwidth_gbs": _maybe(_number(5, 100_000)),
    "unified": _yes,
    "host_link": _maybe(_text),
    "host_link_gbs": _maybe(_number(1, 5000)),
    "fp16_dense_tflops": _RATE,
    "bf16_dense_tflops": _RATE,
    "fp8_dense_tflops": _RATE,
    "int8_dense_tops": _RATE,
    "fp4_dense_tflops": _RATE,
    "release_year": _maybe(_integer(2010, 2040)),
    "memory_options_gb": _words(_integer(1, 4096)),
    "gpu_cores": _maybe(_integer(1, 1024)),
    "power_modes": _words(_text),
    "driver_memory_mib": _maybe(_integer(1024, 4_194_304)),
    "match_regex": _maybe(_regex),
    "source": _text,
    "notes": str,
}
