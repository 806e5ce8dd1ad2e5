"""`tokenroof kv-cache`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli import lists
from harness.cli.flags import Device, Machine, OneModel, OneThreadCount, OneWeightFormat, Output
from harness.cli.interrupted import interrupted, n_rows
from harness.errors import UserError
from harness.options import Options

if TYPE_CHECKING:
    import pandas as pd

NAMES = ("on-off", "memory", "formats", "heads", "window", "reuse", "kinds", "batch")
FIGURES = {
    "on-off": "kv_cache",
    "memory": "kv_memory",
    "formats": "kv_rates",
    "heads": "kv_rates",
    "window": "kv_rates",
    "reuse": "kv_reuse",
    "kinds": "kv_rates",
    "batch": "batch_sizes",
}


def kv_cache(
    model: OneModel = "gpt2-mini",
    n_prompt: Annotated[int, typer.Option("-p", "--n-prompt", metavar="N", min=1, help="Tokens of the prompt.")] = 16,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", metavar="N", min=2, help="Tokens to generate after it.")] = 224,
    experiment: Annotated[
        str, typer.Option("--experiment", metavar="NAMES", help=f"{', '.join(NAMES)}, a list of them, or all.")
    ] = "on-off",
    prefix: Annotated[
        str | None,
        typer.Option("--prefix", metavar="LIST", help="reuse: tokens of the text that are in the cache already."),
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="NAMES", help="Engines. Default: all that suit this machine.")
    ] = None,
    weights: OneWeightFormat = None,
    device: Device = "auto",
    threads: OneThreadCount = None,
    repetitions: Annotated[
        int, typer.Option("-r", "--repetitions", metavar="N", min=1, help="Of a case in each launch.")
    ] = 3,
    launches: Annotated[
        int, typer.Option("--launches", metavar="N", min=1, help="Starts of each engine in a run.")
    ] = 1,
    output: Output = None,
    machine: Machine = None,
) -> int:
    """Measure what the KV cache saves and what it costs.

    Each experiment ends in a figure and a few sentences.
    """
    from harness.experiments.kv_cache.laboratory import prepare
    from harness.workload import parse_ints

    options = Options(
        models=(model,),
        backends=None if backend is None else lists.words(backend),
        weights=None if weights is None else (weights,),
        device=device,
        n_threads=None if threads is None else (threads,),
        repetitions=repetitions,
        launches=launches,
        output=output,
        machine=machine,
    )
    prefixes = None if prefix is None else parse_ints(prefix, flag="--prefix")
    experiments = prepare(options, n_prompt, n_gen, _names(experiment), prefixes)
    path = experiments[0].plans[0].output
    n_before, failed = n_rows(path), False
    try:
        for each in experiments:
            rows = each.run()
            _tell(each.name, rows, path)
            failed |= bool((rows["status"] == "failed").any())
    except KeyboardInterrupt:
        return interrupted(path, n_before)
    return 1 if failed else 0


def _names(text: str) -> tuple[str, ...]:
    names = NAMES if text.strip() == "all" else lists.words(text)
    for name in names:
        if name not in NAMES:
            raise UserError(f"--experiment {text}: {name!r} is none of {', '.join(NAMES)}, all")
    return names


def _tell(name: str, rows: pd.DataFrame, output: Path) -> None:
    """The sentences, and the figure in a file beside the rows."""
    from reports.figures import FIGURES as DRAWN
    from reports.figures import Missing, to_png
    from reports.kv_cache import SENTENCES
    from reports.words import words

    english = words("en")
    failures = rows.loc[rows["status"] == "failed", "error"].dropna().unique()
    print(*SENTENCES[name](rows, english), *(f"failed: {reason}" for reason in failures), sep="\n")
    drawn = DRAWN[FIGURES[name]](rows, english)
    if isinstance(drawn, Missing):
        print(drawn.reason)
        return
    path = output.with_name(f"{output.stem}-{name}.png")
    path.write_bytes(to_png(drawn))
    print(f"figure in {path}, rows in {output}")
