"""`tokenroof run`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.choices import FLASH_ATTENTION, KV_CACHES, KV_FORMATS, SPLIT_MODES, Format
from harness.cli.flags import Device, Machine, Output
from harness.errors import UserError
from harness.options import Options

if TYPE_CHECKING:
    from harness.plan import Plan

# The heavy half of the program (pandas, pyarrow) is imported when a run starts: --help must answer at once.

_LIST = "a list like 512,1024, 0-8192+1024 or 512-4096*2"


def run(
    model: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--model",
            metavar="MODEL",
            help="Preset, Hugging Face directory or .gguf file; may be repeated. Default: llama-3.2-1b.",
        ),
    ] = None,
    n_prompt: Annotated[
        str | None,
        typer.Option("-p", "--n-prompt", metavar="LIST", help=f"Prompt tokens, 0: decode only; {_LIST}. Default: 512."),
    ] = None,
    n_gen: Annotated[
        str | None,
        typer.Option("-n", "--n-gen", metavar="LIST", help="Tokens to generate, 0: prefill only. Default: 128."),
    ] = None,
    n_depth: Annotated[
        str, typer.Option("-d", "--n-depth", metavar="LIST", help="Tokens in the KV cache before the timed work.")
    ] = "0",
    batch: Annotated[str, typer.Option("-B", "--batch", metavar="LIST", help="Sequences at once.")] = "1",
    kv_cache: Annotated[
        str,
        typer.Option(
            "--kv-cache",
            metavar="LIST",
            help="on; off: each step runs its whole prefix again; prefix: -d tokens are kept of another text's cache.",
        ),
    ] = "on",
    seed: Annotated[int, typer.Option("--seed", min=0, max=2**63 - 1, help="Of the token stream.")] = 1,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="NAMES",
            help="torch, mlx, llama.cpp, or some of them: torch,llama.cpp. Default: all that are at home here.",
        ),
    ] = None,
    device: Device = "auto",
    weights: Annotated[
        str | None,
        typer.Option(
            "-w",
            "--weights",
            metavar="LIST",
            help="bf16, f16, f32; 8bit, 4bit: each engine's usual; q6_k, q4_k_m, q4_0, iq4_xs, … (llama.cpp); "
            "6bit, 3bit, 4bit-g32, mxfp4, nvfp4, … (mlx). Default: bf16; what is quantised already, as it is.",
        ),
    ] = None,
    n_gpu_layers: Annotated[
        str, typer.Option("-ngl", "--n-gpu-layers", metavar="LIST", help="Layers on the GPU, -1: all (llama.cpp).")
    ] = "-1",
    n_cpu_moe: Annotated[
        str,
        typer.Option(
            "-ncmoe",
            "--n-cpu-moe",
            metavar="LIST",
            help="Experts of the first so many layers stay in the host's memory (llama.cpp).",
        ),
    ] = "0",
    no_kv_offload: Annotated[
        str,
        typer.Option(
            "-nkvo", "--no-kv-offload", metavar="LIST", help="1: the KV cache stays in the host's memory (llama.cpp)."
        ),
    ] = "0",
    split_mode: Annotated[
        str,
        typer.Option("-sm", "--split-mode", metavar="LIST", help="Over several GPUs: none, layer, row (llama.cpp)."),
    ] = "layer",
    tensor_split: Annotated[
        str | None,
        typer.Option(
            "-ts",
            "--tensor-split",
            metavar="LIST",
            help="Each GPU's part, as in 3/1 (llama.cpp).",
        ),
    ] = None,
    rpc: Annotated[
        str | None,
        typer.Option(
            "--rpc",
            metavar="HOST:PORT,…",
            help="Machines that lend their memory, each running tokenroof serve-tier (llama.cpp).",
        ),
    ] = None,
    allow_partial: Annotated[
        bool,
        typer.Option("--allow-partial", help="Measure what the engine placed otherwise than asked, too."),
    ] = False,
    threads: Annotated[
        str | None, typer.Option("-t", "--threads", metavar="LIST", help="CPU threads. Default: the physical cores.")
    ] = None,
    flash_attn: Annotated[
        str, typer.Option("-fa", "--flash-attn", metavar="LIST", help="Flash attention: on, off, auto.")
    ] = "auto",
    cache_type_k: Annotated[
        str,
        typer.Option("-ctk", "--cache-type-k", metavar="LIST", help=f"Format of cached keys: {', '.join(KV_FORMATS)}."),
    ] = "auto",
    cache_type_v: Annotated[
        str, typer.Option("-ctv", "--cache-type-v", metavar="LIST", help="Format of cached values.")
    ] = "auto",
    cache_kind: Annotated[
        str,
        typer.Option("--cache-kind", metavar="LIST", help="Cache class of transformers, as dynamic, static (torch)."),
    ] = "auto",
    batch_size: Annotated[
        str, typer.Option("-b", "--batch-size", metavar="LIST", help="Tokens llama.cpp is given at once.")
    ] = "2048",
    ubatch_size: Annotated[
        str, typer.Option("-ub", "--ubatch-size", metavar="LIST", help="Tokens llama.cpp computes at once.")
    ] = "512",
    repetitions: Annotated[
        int | None,
        typer.Option("-r", "--repetitions", min=1, help="In each launch. Default: 3, or 5 where loading is dear."),
    ] = None,
    launches: Annotated[
        int | None,
        typer.Option("--launches", min=1, help="Worker starts. Default: 3, or 1 where loading is dear."),
    ] = None,
    output: Output = None,
    machine: Machine = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what the output lacks, or what failed.")] = False,
    max_time: Annotated[
        float | None, typer.Option("--max-time", metavar="SECONDS", min=1, help="Stop after so long.")
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option("--timeout", metavar="SECONDS", min=1, help="A worker silent for so long is taken for hung."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan, its time, disk and memory; run nothing.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", help="Of the result on standard output.")] = "table",  # noqa: A002
) -> int:
    """Measure prefill and decode on this machine, through every engine, and append the rows to a CSV."""
    from harness.workload import parse_ints

    options = Options(
        models=tuple(model) if model else Options.models,
        n_prompt=None if n_prompt is None else parse_ints(n_prompt, flag="-p"),
        n_gen=None if n_gen is None else parse_ints(n_gen, flag="-n"),
        n_depth=parse_ints(n_depth, flag="-d"),
        batch=parse_ints(batch, flag="-B", least=1),
        kv_cache=_choices(kv_cache, "--kv-cache", KV_CACHES),  # type: ignore[arg-type]  # each is one of them
        backends=None if backend is None else _words(backend),
        weights=None if weights is None else _words(weights),
        device=device,
        n_gpu_layers=parse_ints(n_gpu_layers, flag="-ngl", least=-1),
        n_cpu_moe=parse_ints(n_cpu_moe, flag="-ncmoe"),
        kv_offload=tuple(word == "0" for word in _choices(no_kv_offload, "-nkvo", ("0", "1"))),
        split_mode=_choices(split_mode, "-sm", SPLIT_MODES),
        tensor_split=((),) if tensor_split is None else _splits(tensor_split),
        rpc=() if rpc is None else _words(rpc),
        allow_partial=allow_partial,
        n_threads=None if threads is None else parse_ints(threads, flag="-t", least=1),
        flash_attn=_choices(flash_attn, "-fa", FLASH_ATTENTION),
        kv_k_format=_choices(cache_type_k, "-ctk", KV_FORMATS),
        kv_v_format=_choices(cache_type_v, "-ctv", KV_FORMATS),
        cache_kind=_words(cache_kind),
        n_batch=parse_ints(batch_size, flag="-b", least=1),
        n_ubatch=parse_ints(ubatch_size, flag="-ub", least=1),
        repetitions=repetitions,
        launches=launches,
        seed=seed,
        output=output,
        machine=machine,
        resume=resume,
        max_time_s=max_time,
        timeout_s=timeout,
    )
    if dry_run and format != "table":
        raise UserError(f"--dry-run prints a plan for people; --format {format} is for results")
    if sys.stderr.isatty():
        print("looking at this machine and its engines …", file=sys.stderr, flush=True)
    return _dry_run(options) if dry_run else _run(options, format)


def _run(options: Options, format: Format) -> int:  # noqa: A002
    from rich.console import Console

    from harness.plan import make_plan
    from harness.runner import run as run_plan
    from reports.agreement import agreement_text
    from reports.breakdown import breakdown_text
    from reports.summary import summarise
    from reports.table import render
    from reports.words import words
    from results.samples import read_samples
    from results.verify import argmax_agreement

    plan = make_plan(options)
    try:
        rows = run_plan(plan)
    except KeyboardInterrupt:
        print(f"tokenroof: interrupted; {plan.output} is complete so far, --resume goes on", file=sys.stderr)
        return 130
    print(render(summarise(rows), format, Console() if format == "table" and sys.stdout.isatty() else None).rstrip())
    if format == "table":
        agreement = agreement_text(argmax_agreement(read_samples(plan.output), rows), words("en"))
        print(*filter(None, [agreement, "", breakdown_text(rows, words("en")), "", _where(plan)]), sep="\n")
    return 1 if (rows["status"] == "failed").any() else 0


def _where(plan: Plan) -> str:
    intervals = Path(f"{plan.output}.samples.parquet")
    return f"rows in {plan.output}" + (f", intervals in {intervals}" if intervals.exists() else "")


def _dry_run(options: Options) -> int:
    from harness.cli.plan_text import plan_text
    from harness.plan import make_plan

    print(plan_text(make_plan(options)))
    return 0


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",")))


def _splits(text: str) -> tuple[tuple[float, ...], ...]:
    """As llama-bench writes them: parts apart by /, splits by a comma."""
    splits = []
    for word in _words(text):
        try:
            parts = tuple(float(part) for part in word.split("/"))
        except ValueError:
            parts = ()
        if not all(0 <= part < math.inf for part in parts) or not any(parts):
            raise UserError(f"-ts {text}: {word!r} is no split; write each GPU's part, as in 3/1 or 1/1,3/1")
        splits.append(parts)
    return tuple(splits)


def _choices(text: str, flag: str, known: tuple[str, ...]) -> tuple[str, ...]:
    words = _words(text)
    for word in words:
        if word not in known:
            raise UserError(f"{flag} {text}: {word!r} is none of {', '.join(known)}")
    return words
