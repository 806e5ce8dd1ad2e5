"""What llama.cpp's programs print around their results: the GPUs they found, and tables with bars."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from results.importers.source import Cells

_DEVICE = re.compile(
    r"^ *Device \d+: (?P<cuda>[^,|]+), (?:compute capability|gfx)"
    r"|ggml_vulkan: \d+ = (?P<vulkan>.+?) \([^()]*\) \|"
    r"|ggml_metal_(?:init|device_init): (?:picking default device|GPU name): +(?P<metal>\w.*)"
)
_METAL_AGAIN = re.compile(r"GPU name: +(?:MTL|\S+\d+ \()")  # "MTL0 (Apple M4)", after the plain name


def device_named(line: str) -> str | None:
    """The product name of a GPU that this line of a log tells of."""
    match = _DEVICE.search(line)
    if match is None or _METAL_AGAIN.search(line):
        return None
    return str(next(filter(None, match.groups()))).strip()


def table_cells(line: str) -> list[str]:
    """The cells of a table's line; what stands before it, a time stamp or a line number, is not part of it."""
    _, bar, rest = line.partition("|")
    body, end, _ = rest.rpartition("|")
    return [cell.strip() for cell in body.split("|")] if bar and end else []


def gpu_layers(cells: Cells) -> int | None:
    """Layers asked to be on the GPU; -1 for all, as any number below 0 is to llama.cpp (newer ones print -2)."""
    told = cells.whole("n_gpu_layers")
    return None if told is None else max(told, -1)
