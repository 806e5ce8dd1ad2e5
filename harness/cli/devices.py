"""`tokenroof devices`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.cli.choices import Format
from results.amounts import size

if TYPE_CHECKING:
    from harness.machine.device import Device

_HEADINGS = ("id", "name", "memory", "bandwidth", "host link", "year")


def devices(
    name: Annotated[
        str | None, typer.Argument(help='One device: its id, its name or words of it ("RTX 5090").')
    ] = None,
    format: Annotated[Format, typer.Option("--format", help="Of the result on standard output.")] = "table",  # noqa: A002
) -> int:
    """List the device catalog, or explain one device."""
    import json

    from harness.machine.catalog import find, load_catalog

    chosen = load_catalog() if name is None else (find(name),)
    if format == "json":
        values = [_values(device) for device in chosen]
        print(json.dumps(values if name is None else values[0], indent=2, ensure_ascii=False))
    elif format == "csv":
        _print_csv([_values(device) for device in chosen])
    elif format == "md":
        rows = [_cells(device) for device in chosen] if name is None else _explanation(chosen[0])
        _print_markdown(_HEADINGS if name is None else ("", ""), rows)
    elif name is None:
        _print_table([_cells(device) for device in chosen])
    else:
        for label, fact in _explanation(chosen[0]):
            print(f"{label:<12}  {fact}")
    return 0


def _values(device: Device) -> dict[str, Any]:
    """The catalog's columns and what follows from them."""
    from dataclasses import asdict

    from harness.machine.catalog import usable_bytes

    return asdict(device) | {
        "bandwidth_bytes_s": device.bandwidth_bytes_s,
        "bandwidth_source": device.bandwidth_source,
        "usable_bytes": usable_bytes(device),
    }


def _cells(device: Device) -> tuple[str, ...]:
    return (
        device.id,
        device.name,
        "-" if device.memory_gb is None else f"{device.memory_gb:g} GB",
        _bandwidth(device) or "-",
        device.host_link or "-",
        str(device.release_year or "-"),
    )


def _explanation(device: Device) -> list[tuple[str, ...]]:
    """Label and fact; what is not known is left out, but for bandwidth and matrix rate."""
    from harness.machine.catalog import usable_bytes

    memory = f"{device.memory_gb:g} GB " if device.memory_gb else ""
    usable = usable_bytes(device)
    each_way = f", {device.host_link_gbs:g} GB/s each way" if device.host_link_gbs else ""
    rates = {
        "FP16": device.fp16_dense_tflops,
        "BF16": device.bf16_dense_tflops,
        "FP8": device.fp8_dense_tflops,
        "INT8": device.int8_dense_tops,
        "FP4": device.fp4_dense_tflops,
    }
    known_rates = ", ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate)
    facts = {
        "id": device.id,
        "name": device.name,
        "vendor": device.vendor,
        "year": str(device.release_year or ""),
        "memory": f"{memory}{device.memory_type}{', shared by CPU and GPU' if device.unified else ''}",
        "usable": _usable(usable, device) if usable else "",
        "bandwidth": f"{_bandwidth(device) or 'unknown'} ({device.bandwidth_source})",
        "host link": f"{device.host_link}{each_way}" if device.host_link else "",
        "matrix rate": f"{known_rates}, in 10^12 operations a second, dense" if known_rates else "unknown",
        "source": device.source,
        "notes": device.notes,
    }
    return [(label, fact) for label, fact in facts.items() if fact]


def _usable(n_bytes: int, device: Device) -> str:
    """Sizes on a box are powers of two: a card of 32 GB has 34.4 · 10^9 bytes."""
    return f"{size(n_bytes)} of {size(device.memory_bytes or n_bytes)} (of 10^9 bytes) for weights and KV cache"


def _bandwidth(device: Device) -> str | None:
    """In GB/s, with a decimal where there is one."""
    rate = device.bandwidth_bytes_s
    return None if rate is None else f"{rate / 1e9:.1f}".removesuffix(".0") + " GB/s"


def _print_table(rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(*_HEADINGS, box=box.SIMPLE_HEAD, show_edge=False)
    for column in (2, 3, 5):
        table.columns[column].justify = "right"
    for column in (0, 2, 3):  # an id must be copied whole, a number read whole
        table.columns[column].no_wrap = True
    for row in rows:
        table.add_row(*row)
    Console(markup=False).print(table)


def _print_markdown(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    for row in (headings, ("---",) * len(headings), *rows):
        print("|", " | ".join(cell.replace("|", r"\|") for cell in row), "|")


def _print_csv(values: list[dict[str, Any]]) -> None:
    import csv
    import sys

    writer = csv.DictWriter(sys.stdout, values[0], lineterminator="\n")
    writer.writeheader()
    for value in values:
        words = {name: " ".join(map(str, cell)) for name, cell in value.items() if isinstance(cell, tuple)}
        writer.writerow(value | words)
