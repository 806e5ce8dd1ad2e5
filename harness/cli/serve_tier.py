"""`tokenroof serve-tier`."""

from __future__ import annotations

import math
import sys
from typing import Annotated, Any

import typer

from harness.errors import UserError
from harness.tiers.endpoints import is_loopback
from results.amounts import size


def serve_tier(
    bind: Annotated[
        str, typer.Option("--bind", metavar="HOST:PORT", help="Where to listen; only this machine can reach 127.0.0.1.")
    ] = "127.0.0.1:50052",
    threads: Annotated[
        int | None,
        typer.Option("-t", "--threads", metavar="N", min=1, help="CPU threads. Default: the physical cores."),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            "--device", metavar="NAME", help="auto (the GPUs, or else the CPU), cpu, gpu, or a GPU's id such as CUDA0."
        ),
    ] = "auto",
) -> int:
    """Lend this machine's memory to a run elsewhere (llama.cpp).

    And its processor. The run is given --rpc HOST:PORT.
    """
    from backends.registry import BACKENDS
    from harness.machine.hardware import physical_cores
    from harness.process import Worker, WorkerDiedError

    if not BACKENDS["llama.cpp"].installed:
        raise UserError('llama.cpp is not installed: pip install "tokenroof[llama]"')
    if not is_loopback(bind):
        print(
            f"tokenroof: WARNING: whoever reaches {bind} can use this machine, and take it over: the protocol has no "
            "authentication. Serve only in a network that you trust.",
            file=sys.stderr,
            flush=True,
        )
    job = {"task": "serve", "endpoint": bind, "n_threads": threads or physical_cores(), "device": device}
    try:
        with Worker(job) as worker:
            for event in worker.events(math.inf):
                if event["event"] == "failed":
                    raise UserError(event["error"])
                print(_text(bind, event["devices"]), flush=True)
    except WorkerDiedError as death:
        raise UserError(death.reason) from death
    except KeyboardInterrupt:
        print("stopped serving", file=sys.stderr)
    return 0


def _text(bind: str, devices: list[dict[str, Any]]) -> str:
    lent = ", ".join(f"{each['id']} ({each['name']}, {size(each['memory_bytes'] or 0)})" for each in devices)
    return f"serving {lent} at {bind}; Ctrl-C ends it"
