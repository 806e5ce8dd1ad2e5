"""`tokenroof models`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from results.amounts import about, size

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table


def models(
    clean: Annotated[bool, typer.Option("--clean", help="Delete the synthesised models from the cache.")] = False,
) -> int:
    """List the presets, the suites, and the model files made here."""
    from rich.console import Console

    from harness.cli.suite_text import contents
    from harness.models import cache
    from harness.models.presets_table import models_table
    from harness.suites.catalog import SUITES

    if clean:
        print(f"{size(cache.clean())} freed in {cache.directory()}")
        return 0
    Console().print(_table(models_table()))
    for suite in SUITES.values():
        print(f"--suite {suite.name} (in the rows {suite.label}):", *contents(suite), sep="\n  ")
    print(
        f"model files are kept in {cache.directory()} (the environment variable TOKENROOF_CACHE names another folder)"
    )
    return 0


def _table(presets: pd.DataFrame) -> Table:
    from rich.table import Table

    table = Table("preset", "params", "bf16 weights", "KV cache a token", "for", "in the cache")
    table.columns[0].no_wrap = True
    for name, params, weights, kv_token, cached, can_run in presets.itertuples(index=False):
        table.add_row(
            name,
            about(params),
            size(weights),
            f"{kv_token:,.0f} B",
            "run" if can_run else "predict",
            size(cached) if cached else "",
        )
    return table
