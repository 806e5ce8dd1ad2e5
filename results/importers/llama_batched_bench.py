"""llama-batched-bench: its table and its JSON lines. B sequences of PP prompt tokens, then TG steps with all of them.

S_TG counts TG steps over TG intervals from a context of PP. T_PP ends when the last prompt's logits are computed, which
is the time to first token but for the argmax.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from results.amounts import counted
from results.importers.llama_log import device_named, gpu_layers, table_cells
from results.importers.rows import Imported
from results.importers.source import Cells, Format
from results.machine_label import machine_label

if TYPE_CHECKING:
    from results.importers.source import Source

_TOOL = "llama-batched-bench"
_COLUMNS = {
    "PP": "pp", "TG": "tg", "B": "pl", "N_KV": "n_kv", "T_PP s": "t_pp", "S_PP t/s": "speed_pp", "T_TG s": "t_tg",
    "S_TG t/s": "speed_tg", "T s": "t", "S t/s": "speed",
}  # fmt: skip
_WORK = frozenset({"pp", "tg", "pl", "speed_pp", "speed_tg"})
_TOLD = frozenset({*_COLUMNS.values(), "n_gpu_layers", "n_threads", "flash_attn"})
_SETTINGS = re.compile(r"\b(\w+) = (-?\d+)")
_FLASH = {0: "off", 1: "on", -1: "auto"}


def _recognises(source: Source) -> bool:
    if any(table_cells(line) == list(_COLUMNS) for _, line in source.lines()):
        return True
    return any(value is not None and value.keys() >= _WORK for _, value in source.json_objects)


def _read(source: Source) -> Imported:
    out = Imported(source, _TOOL)
    for cells, device in [*_table(source), *_objects(source, out)]:
        _add(out, cells, device)
    return out


def _objects(source: Source, out: Imported) -> list[tuple[Cells, str | None]]:
    found: list[tuple[Cells, str | None]] = []
    for line, value in source.json_objects:
        if value is None:
            out.leave_out(line, "a JSON object that is broken or cut short")
        elif value.keys() >= _WORK:
            found.append((Cells(value, source, line), None))
    return found


def _table(source: Source) -> list[tuple[Cells, str | None]]:
    found: list[tuple[Cells, str | None]] = []
    settings: dict[str, Any] = {}
    device: str | None = None
    inside = False
    for number, line in source.lines():
        cells = table_cells(line)
        if "n_kv_max =" in line:
            settings = dict(_SETTINGS.findall(line))
        elif cells == list(_COLUMNS):
            inside = True
        elif inside and cells and not set("".join(cells)) <= set("-:"):
            if len(cells) != len(_COLUMNS):
                raise source.error(number, f"{counted(len(cells), 'cell')} under a header of {len(_COLUMNS)}")
            values = settings | dict(zip(_COLUMNS.values(), cells, strict=True))
            found.append((Cells(values, source, number), device))
        else:
            device = device_named(line) or device
    return found


def _add(out: Imported, cells: Cells, device: str | None) -> None:
    n_prompt, n_gen, batch = cells.count("pp"), cells.count("tg"), cells.count("pl")
    if not batch or not (n_prompt or n_gen):
        out.leave_out(cells.line, "a line without work")
        return
    if cells.count("is_tg_separate"):
        out.leave_out(cells.line, "sequences decoded one after the other are no batch")
        return
    rates, derived, unavailable = _prefill(cells, n_prompt, n_gen, batch)
    out.add(
        cells.line,
        machine=machine_label(device or "") or None,
        device_name=device,
        backend="llama.cpp",
        n_threads=cells.whole("n_threads"),
        n_gpu_layers=gpu_layers(cells),
        flash_attn=_FLASH.get(cells.whole("flash_attn") or 0) if cells.text("flash_attn") else None,
        engine_settings=cells.settings(_TOLD),
        n_depth=0,
        n_prompt=n_prompt,
        n_gen=n_gen,
        decode_start=n_prompt if n_gen else None,
        batch=batch,
        decode_tok_s=cells.rate("speed_tg") if n_gen else None,
        **rates,
        derived=derived,
        unavailable=unavailable,
    )


def _prefill(
    cells: Cells, n_prompt: int, n_gen: int, batch: int
) -> tuple[dict[str, float | None], dict[str, str], dict[str, str]]:
    """Rates, how they follow, and why there are none."""
    if not n_prompt:
        return {}, {}, dict.fromkeys(("ttft_s", "prefill_tok_s"), "no prompt")
    shared = cells.count("is_pp_shared") or cells.whole("n_kv") == n_prompt + batch * n_gen
    if batch > 1 and shared:
        return {}, {}, dict.fromkeys(("ttft_s", "prefill_tok_s"), "one prompt, shared by all sequences")
    times = {"ttft_s": cells.rate("t_pp"), "prefill_tok_s": cells.rate("speed_pp")}
    return times, {"ttft_s": "T_PP: without the argmax of the last logits"}, {}


FORMAT = Format(_TOOL, _recognises, _read)
