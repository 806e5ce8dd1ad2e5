"""`mlx_lm.benchmark`: one line a trial.

For one sequence it divides N tokens by the N-1 intervals after the first, so our rate is (N-1)/N of its own; its prompt
rate is the prompt's length over the time to the first token. For several it adds up the times of its steps.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from results.importers.rows import Imported
from results.importers.source import Cells, Format, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from results.importers.source import Source

_TOOL = "mlx_lm.benchmark"
_TIMING = re.compile(
    r"Timing with prompt_tokens=(?P<n_prompt>\d+)(?:,| and) generation_tokens=(?P<n_gen>\d+)"
    r"(?:, batch_size=(?P<batch>\d+))?"
)
_TRIAL = re.compile(r"Trial (?P<trial>\d+): +(?P<values>\w+=[\d.]+(?:, \w+=[\d.]+)*)")
_VALUE = re.compile(r"(\w+)=([\d.]+)")
_COMMAND = re.compile(r"mlx_lm[. ](?:benchmark|generate)\b.*?--model[ =](\S+)")


def _recognises(source: Source) -> bool:
    return _TIMING.search(source.text) is not None


def _read(source: Source) -> Imported:
    out = Imported(source, _TOOL)
    model: str | None = None
    work: Mapping[str, Any] | None = None
    for number, line in source.lines():
        if command := model_of_command(line):
            model = command
        elif timing := _TIMING.search(line):
            if work:
                out.next_run()
            work = timing.groupdict()
        elif work and (trial := _TRIAL.search(line)):
            values = {**work, "trial": trial["trial"], **dict(_VALUE.findall(trial["values"]))}
            add_run(out, Cells(values, source, number), model)
    return out


def model_of_command(line: str) -> str | None:
    """The model that a command line of mlx-lm names, without its folders or its owner."""
    match = _COMMAND.search(line)
    return plain(match[1].strip("'\"").rstrip("/").split("/")[-1]) or None if match else None


def add_run(out: Imported, cells: Cells, model: str | None) -> None:
    """The row of one generation.

    Args:
        out: gets it.
        cells: `n_prompt`, `n_gen`, `batch`, `trial`, `prompt_tps`, `generation_tps` and `peak_memory`, as printed.
        model: its name, where that was printed.
    """
    n_prompt, n_gen, batch = cells.count("n_prompt"), cells.count("n_gen"), cells.count("batch") or 1
    measured, derived = (_one_sequence if batch == 1 else _several)(cells, n_prompt, n_gen)
    if peak_gb := cells.rate("peak_memory"):
        measured["peak_device_bytes"] = round(peak_gb * 1e9)
        derived["peak_device_bytes"] = f"{peak_gb} GB as rounded there, since the process began"
    out.add(
        cells.line,
        backend="mlx",
        model=model,
        n_depth=0,
        n_prompt=n_prompt,
        n_gen=n_gen,
        decode_start=n_prompt if n_gen else None,
        batch=batch,
        repetition=cells.whole("trial"),
        **measured,
        derived=derived,
    )


def _one_sequence(cells: Cells, n_prompt: int, n_gen: int) -> tuple[dict[str, Any], dict[str, str]]:
    """What mlx-lm's `stream_generate` measured, and how it follows."""
    prefill = cells.rate("prompt_tps") if n_prompt else None
    decode = cells.rate("generation_tps") if n_gen > 1 else None
    derived = {}
    if prefill:
        derived["ttft_s"] = "prompt tokens / prompt rate, which is how mlx-lm has the rate from this time"
    if decode:
        derived["decode_tok_s"] = f"{decode} · {n_gen - 1}/{n_gen}: N tokens were divided by N-1 intervals"
    measured = {
        "prefill_tok_s": prefill,
        "ttft_s": n_prompt / prefill if prefill else None,
        "decode_tok_s": decode * (n_gen - 1) / n_gen if decode else None,
    }
    return measured, derived


def _several(cells: Cells, n_prompt: int, n_gen: int) -> tuple[dict[str, Any], dict[str, str]]:
    """What `batch_generate` measured: one rate over all sequences."""
    how = "as printed, over mlx-lm's own step times: its versions count the first token's time here or to the prompt"
    measured = {
        "prefill_tok_s": cells.rate("prompt_tps") if n_prompt else None,
        "decode_tok_s": cells.rate("generation_tps") if n_gen else None,
    }
    return measured, {"decode_tok_s": how}


FORMAT = Format(_TOOL, _recognises, _read)
