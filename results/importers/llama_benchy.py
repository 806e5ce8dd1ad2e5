"""llama-benchy's JSON and CSV: what a client saw of a server that speaks OpenAI's protocol.

Its generation rate is ours: N-1 tokens over the N-1 intervals after the first. Its prompt rate divides the prompt by
the time to the first response less a measured latency. Its time to first token is the client's: HTTP, the chat template
and tokenising are in it. Concurrent requests start and end apart: their total is no batch's decode rate, and left out.

Without prefix caching the server computes the context again with each prompt: the context is part of the prompt then.
"""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

from results.amounts import counted
from results.importers.rows import Imported
from results.importers.source import Cells, Format

if TYPE_CHECKING:
    from results.importers.source import Source

_TOOL = "llama-benchy"
_REPORT = frozenset({"benchmarks", "latency_mode"})
_CSV = frozenset({"model", "test_name", "t_s_mean", "e2e_ttft_mean"})
_TEST = re.compile(
    r"(?P<kind>(?:ctx_)?(?:pp|tg))(?P<size>\d{1,9})?(?: @ d(?P<context>\d{1,9}))?(?: \(c(?P<concurrency>\d{1,9})\))?"
)
_TTFT = "end to end at the client: HTTP, chat template and tokenising included"
_PREFILL = "prompt tokens / (time to first response - latency), at the client"


def _recognises(source: Source) -> bool:
    if any(_is_csv_header(line) for _, line in source.lines()):
        return True
    return any(value is not None and value.keys() >= _REPORT for _, value in source.json_objects)


def _read(source: Source) -> Imported:
    out = Imported(source, _TOOL)
    for line, value in source.json_objects:
        if value is not None and value.keys() >= _REPORT:
            _report(out, Cells(value, source, line))
    _table(source, out)
    return out


def _report(out: Imported, report: Cells) -> None:
    runs = report.values["benchmarks"]
    if not isinstance(runs, list):
        raise report.error("benchmarks", "is no list")
    cached = report.values.get("prefix_caching_enabled") is True
    version, latency = report.text("version"), report.text("latency_mode")
    common = {
        "source": f"{_TOOL} {version}" if version else _TOOL,
        "engine_settings": {"prefix_caching": cached, **({"latency_mode": latency} if latency else {})},
    }
    for number, run in enumerate(runs, start=1):
        if not isinstance(run, dict):
            raise report.error("benchmarks", f"holds something else than runs, at {number}")
        cells = Cells(run, report.source, report.line)
        if cells.count("concurrency") > 1:
            out.leave_out(report.line, f"run {number}: {cells.count('concurrency')} concurrent requests")
            continue
        is_context = run.get("is_context_prefill_phase") is True
        context, prompt = cells.count("context_size"), cells.count("prompt_size")
        n_gen = cells.count("response_size")
        work = _work(0, context, n_gen, cached=False) if is_context else _work(context, prompt, n_gen, cached=cached)
        for columns in _repetitions(cells):
            out.add(report.line, **common, **_model(report), **work, **columns)


def _repetitions(run: Cells) -> list[dict[str, Any]]:
    """The measured columns of each run; those of the mean where not every run has every number."""
    names = {"prefill_tok_s": "pp_throughput", "decode_tok_s": "tg_throughput", "ttft_ms": "e2e_ttft"}
    told = {column: run.values[name] for column, name in names.items() if isinstance(run.values.get(name), dict)}
    metrics = {column: Cells(metric, run.source, run.line) for column, metric in told.items()}
    values = {column: cells.rates("values") for column, cells in metrics.items()}
    if not metrics:
        return []
    if len({len(one) for one in values.values()}) != 1 or not all(values.values()):
        return [_measured({column: cells.rate("mean") for column, cells in metrics.items()}, "mean of the runs: ")]
    runs = zip(*values.values(), strict=True)
    return [
        _measured(dict(zip(values, one, strict=True))) | {"repetition": repetition}
        for repetition, one in enumerate(runs, start=1)
    ]


def _measured(values: dict[str, float | None], how: str = "") -> dict[str, Any]:
    """Columns and how they follow."""
    ttft_ms = values.get("ttft_ms")
    columns: dict[str, Any] = {name: values.get(name) for name in ("prefill_tok_s", "decode_tok_s")}
    columns["ttft_s"] = ttft_ms / 1e3 if ttft_ms else None
    meaning = {"prefill_tok_s": how + _PREFILL, "ttft_s": how + _TTFT, "decode_tok_s": how.removesuffix(": ")}
    return {**columns, "derived": {name: text for name, text in meaning.items() if columns[name] and text}}


def _work(context: int, prompt: int, n_gen: int, *, cached: bool) -> dict[str, Any]:
    return {
        "n_depth": context if cached else 0,
        "n_prompt": prompt if cached else context + prompt,
        "n_gen": n_gen,
        "decode_start": context + prompt if n_gen else None,
    }


def _model(cells: Cells) -> dict[str, Any]:
    """Which engine served it is not told, only that it was a server."""
    name = (cells.text("model") or "").rstrip("/").split("/")[-1]
    return {"backend": "openai-server", "model": name or None}


def _is_csv_header(line: str) -> bool:
    return set(line.split(",")) >= _CSV


def _table(source: Source, out: Imported) -> None:
    """A prompt's line and the generation's below it are one run."""
    header: list[str] = []
    prompt: tuple[Cells, dict[str, str | None]] | None = None
    caches = "ctx_pp" in source.text
    for number, line in source.lines():
        if _is_csv_header(line):
            header, prompt = line.split(","), None
            continue
        cells = _cells(line)
        if not header or len(cells) < 2:
            continue
        if len(cells) != len(header):
            raise source.error(number, f"{counted(len(cells), 'cell')} under a header of {len(header)}")
        row = Cells(dict(zip(header, cells, strict=True)), source, number)
        test = _TEST.fullmatch(row.text("test_name") or "")
        if test is None:
            raise row.error("test_name", "is no test of llama-benchy")
        if int(test["concurrency"] or 1) > 1:
            out.leave_out(number, f"{test['concurrency']} concurrent requests")
        elif test["kind"].endswith("pp"):
            prompt = row, test.groupdict()
        elif prompt is None:
            out.leave_out(number, "a generation without its prompt")
        else:
            _add_pair(out, prompt[0], prompt[1], row, int(test["size"] or 0), caches=caches)
            prompt = None


def _add_pair(
    out: Imported, prompt: Cells, test: dict[str, str | None], generation: Cells, n_gen: int, *, caches: bool
) -> None:
    context, size = int(test["context"] or 0), int(test["size"] or 0)
    values = {"prefill_tok_s": prompt.rate("t_s_mean"), "ttft_ms": prompt.rate("e2e_ttft_mean")}
    if n_gen:
        work = _work(context, size, n_gen, cached=caches)
        values["decode_tok_s"] = generation.rate("t_s_mean")
    else:
        work = _work(0, context, 0, cached=False)
        out.leave_out(generation.line, "the generation after a context, of unknown length")
    columns = _measured(values, "mean of the runs: ")
    out.add(prompt.line, **_model(prompt), **work, **columns, engine_settings={"prefix_caching": caches})


def _cells(line: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True), [])
    except csv.Error:
        return line.split(",")


FORMAT = Format(_TOOL, _recognises, _read)
