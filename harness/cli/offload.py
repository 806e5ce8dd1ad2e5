"""`tokenroof offload`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli import lists
from harness.cli.flags import Device, Machine, OneModel, OneThreadCount, OneWeightFormat, Output
from harness.errors import UserError
from harness.options import Options


def offload(
    model: OneModel,
    n_prompt: Annotated[
        int | None,
        typer.Option("-p", "--n-prompt", metavar="N", min=0, help="Prompt tokens, 0: decode only. Default: 512."),
    ] = None,
    n_gen: Annotated[
        int | None, typer.Option("-n", "--n-gen", metavar="N", min=2, help="Tokens to generate. Default: 128.")
    ] = None,
    n_depth: Annotated[
        int, typer.Option("-d", "--n-depth", metavar="N", min=0, help="Tokens in the KV cache before the timed work.")
    ] = 0,
    batch: Annotated[int, typer.Option("-B", "--batch", metavar="N", min=1, help="Sequences at once.")] = 1,
    weights: OneWeightFormat = None,
    device: Device = "auto",
    rpc: Annotated[
        str | None,
        typer.Option("--rpc", metavar="HOST:PORT,…", help="Machines that lend their memory: tokenroof serve-tier."),
    ] = None,
    threads: OneThreadCount = None,
    repetitions: Annotated[
        int | None,
        typer.Option(
            "-r", "--repetitions", metavar="N", min=1, help="In each launch. Default: 3, or 5 where loading takes long."
        ),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option(
            "--launches", metavar="N", min=1, help="Of each point. Default: 3, or 1 where loading takes long."
        ),
    ] = None,
    output: Output = None,
    machine: Machine = None,
) -> int:
    """Find how many layers to take off the host (llama.cpp).

    The most that fit, the number that is fastest, and the speed of each memory.
    """
    from harness.experiments.offload import offload as sweep
    from reports.offload import offload_text
    from reports.words import words

    if device == "cpu":
        raise UserError("--device cpu leaves no memory to offload to; give an accelerator's name, or leave it out")
    options = Options(
        models=(model,),
        n_prompt=None if n_prompt is None else (n_prompt,),
        n_gen=None if n_gen is None else (n_gen,),
        n_depth=(n_depth,),
        batch=(batch,),
        weights=None if weights is None else (weights,),
        device=device,
        rpc=() if rpc is None else lists.words(rpc),
        n_threads=None if threads is None else (threads,),
        repetitions=repetitions,
        launches=launches,
        output=output,
        machine=machine,
    )
    try:
        found = sweep(options)
    except KeyboardInterrupt:
        print("tokenroof: interrupted; whatever was measured is kept", file=sys.stderr)
        return 130
    print(offload_text(found.rows, words("en"), found.left_out), "", f"rows in {found.plan.output}", sep="\n")
    return 1 if (found.rows["status"] == "failed").any() else 0
