"""llama-bench's table, pasted from a terminal, an issue or a chat: several of them, logs between, colours.

It shows only the settings that were not the default, so all others stay unknown. Sizes and parameters are rounded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from results.amounts import counted
from results.importers.llama_bench import TOOL, add_test
from results.importers.llama_log import device_named, table_cells
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results.importers.source import Source

# The table's headings where they are not the field's name.
_FIELDS = {
    "ngl": "n_gpu_layers", "threads": "n_threads", "sm": "split_mode", "nkvo": "no_kv_offload",
    "fa": "flash_attn", "mmap": "use_mmap", "dio": "use_direct_io", "lm": "load_mode", "embd": "embeddings",
    "nopo": "no_op_offload", "noh": "no_host", "rpk": "repack", "dev": "devices", "ts": "tensor_split",
    "ot": "tensor_buft_overrides", "fitt": "fit_target", "fitc": "fit_min_ctx",
}  # fmt: skip
_ALWAYS = ("model", "size", "params", "backend")  # first columns, before "test" and "t/s"

_TEST = re.compile(r"(?:pp ?(?P<pp>\d+))?\+?(?:tg ?(?P<tg>\d+))?(?: @ d ?(?P<d>\d+))?")
# The sign between becomes other characters where a text was read in another encoding.
_RATE = re.compile(r"(?P<mean>\d+(?:\.\d+)?)(?:\s*[^\d\s.|]{1,3}\s*(?P<spread>\d+(?:\.\d+)?))?")
_QUANTITY = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?) (?P<unit>[KMG]iB|[KMBT])")
_UNITS = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BUILD = re.compile(r"\bbuild: (?P<commit>[0-9a-f]{6,40}|unknown) \((?P<number>\d+)\)")


def _recognises(source: Source) -> bool:
    return any(_is_header(cells) or _fields(cells) for _, line in source.lines() if (cells := table_cells(line)))


def _read(source: Source) -> Imported:
    out = Imported(source, TOOL)
    header: list[str] = []
    devices: list[str] = []
    tests: list[tuple[Cells, dict[str, str]]] = []

    def end_table(build: Mapping[str, str]) -> None:
        """A table's build stands below it."""
        for cells, derived in tests:
            told = {**cells.values, **build, "gpu_info": ", ".join(devices)}
            add_test(out, Cells(told, source, cells.line), derived)
        if tests:
            out.next_run()
        tests.clear()

    for number, line in source.lines():
        cells = table_cells(line)
        if _is_header(cells):
            end_table({})
            header = cells
        elif fields := _fields(cells):
            told = _settings(source, number, header, cells) | fields
            tests.append((Cells(told, source, number), _rounded(cells)))
        elif build := _BUILD.search(line):
            end_table({"build_commit": build["commit"], "build_number": build["number"]})
            devices.clear()
        elif device := device_named(line):
            if tests:  # the next call's log
                end_table({})
                devices.clear()
            devices.append(device)
    end_table({})
    return out


def _is_header(cells: list[str]) -> bool:
    return tuple(cells[:4]) == _ALWAYS and cells[-2:] == ["test", "t/s"]


def _fields(cells: list[str]) -> dict[str, str] | None:
    """What the columns that every table has say, as llama-bench's fields; None where the line is no test."""
    if len(cells) < len(_ALWAYS) + 2:
        return None
    model, size, params, backends = cells[0], _QUANTITY.fullmatch(cells[1]), _QUANTITY.fullmatch(cells[2]), cells[3]
    test, rate = _TEST.fullmatch(cells[-2]), _RATE.fullmatch(cells[-1])
    if not (size and params and test and rate and (test["pp"] or test["tg"])):
        return None
    return {
        "model_type": model,
        "model_size": _quantity(size),
        "model_n_params": _quantity(params),
        "backends": backends,
        "n_prompt": test["pp"] or "",
        "n_gen": test["tg"] or "",
        "n_depth": test["d"] or "",
        "avg_ts": rate["mean"],
        "stddev_ts": rate["spread"] or "",
    }


def _quantity(match: re.Match[str]) -> str:
    return str(round(float(match["number"]) * _UNITS[match["unit"]]))


def _settings(source: Source, line: int, header: list[str], cells: list[str]) -> dict[str, str]:
    """The columns between, under llama-bench's names; none where the header was not pasted."""
    if not header:
        return {}
    bars = len(cells) - len(header)
    if bars > 0 and "ot" in header:  # its patterns hold bars, which llama-bench does not escape
        at = header.index("ot")
        cells = [*cells[:at], "|".join(cells[at : at + bars + 1]), *cells[at + bars + 1 :]]
    if len(cells) != len(header):
        raise source.error(line, f"{counted(len(cells), 'cell')} under a header of {len(header)}")
    between = slice(len(_ALWAYS), -2)
    return {_FIELDS.get(name, name): value for name, value in zip(header[between], cells[between], strict=True)}


def _rounded(cells: list[str]) -> dict[str, str]:
    _, size, params, *_ = cells
    return {"weight_bytes": f"{size}, as rounded there", "n_params": f"{params}, as rounded there"}


FORMAT = Format("llama-bench Markdown", _recognises, _read)
