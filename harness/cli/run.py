"""`tokenroof run`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from backends.base import LoadRequest
from backends.openai import NAME as SERVER
from harness.cli import lists
from harness.cli import run_flags as flags
from harness.cli.choices import FLASH_ATTENTION, KV_CACHES, KV_FORMATS, SPLIT_MODES, Format
from harness.cli.flags import Device, Machine, Output, refuse_given
from harness.cli.interrupted import interrupted, n_rows
from harness.errors import UserError
from harness.options import Options

if TYPE_CHECKING:
    import pandas as pd

    from harness.suites.catalog import Suite

# The heavy half of the program (pandas, pyarrow) is imported when a run starts: --help must answer at once.

# What --suite leaves open: on what a suite runs, how often, and where the rows go.
_OF_ANY_SUITE = (
    *("suite", "backend", "device", "threads", "n_gpu_layers", "split_mode", "tensor_split", "rpc", "allow_partial"),
    *("repetitions", "launches", "output", "machine", "resume", "max_time", "timeout", "dry_run", "format"),
)
# What can be asked of a server: the work, and how often; its settings are its own.
_OF_A_SERVER = (
    *("model", "artifact", "n_prompt", "n_gen", "n_depth", "batch", "kv_cache", "prefix_cache", "seed", "backend"),
    *("base_url", "api_key", "rate", "on", "weights", "repetitions", "output", "machine", "resume", "max_time"),
    *("timeout", "dry_run", "format"),
)


def run(
    context: typer.Context,
    model: flags.Models = None,
    artifact: flags.Artifacts = None,
    download: flags.Download = False,
    allow_unsafe_pickle: flags.AllowPickle = False,
    weights: flags.Weights = None,
    suite: flags.SuiteName = None,
    n_prompt: flags.PromptTokens = None,
    n_gen: flags.GenTokens = None,
    n_depth: flags.Depths = "0",
    batch: flags.Batches = "1",
    kv_cache: flags.KvCaches = "on",
    prefix_cache: flags.PrefixCache = False,
    prompt_file: flags.PromptFile = None,
    seed: flags.Seed = Options.seed,
    backend: flags.Backends = None,
    device: Device = "auto",
    threads: flags.Threads = None,
    flash_attn: flags.FlashAttention = "auto",
    cache_type_k: flags.KeyFormats = "auto",
    cache_type_v: flags.ValueFormats = "auto",
    cache_kind: flags.CacheKinds = "auto",
    batch_size: flags.BatchTokens = str(LoadRequest.n_batch),
    ubatch_size: flags.UbatchTokens = str(LoadRequest.n_ubatch),
    n_gpu_layers: flags.GpuLayers = "-1",
    n_cpu_moe: flags.CpuExperts = "0",
    no_kv_offload: flags.NoKvOffload = "0",
    split_mode: flags.SplitModes = "layer",
    tensor_split: flags.TensorSplits = None,
    rpc: flags.Rpc = None,
    allow_partial: flags.AllowPartial = False,
    base_url: flags.BaseUrl = None,
    api_key: flags.ApiKey = None,
    rate: flags.Rate = None,
    on: flags.ServerDevice = None,
    repetitions: flags.Repetitions = None,
    launches: flags.Launches = None,
    max_time: flags.MaxTime = None,
    timeout: flags.Timeout = None,
    output: Output = None,
    machine: Machine = None,
    resume: flags.Resume = False,
    dry_run: flags.DryRun = False,
    format: flags.ResultFormat = "table",  # noqa: A002
) -> int:
    """Measure prefill and decode on this machine.

    The same work goes through every engine, and each repetition of it is a row in a CSV.
    """
    from harness.models.paired import parse as parse_artifacts
    from harness.prompt.text import read_text
    from harness.suites.catalog import named as suite_named
    from harness.workload import parse_ints

    options = Options(
        models=tuple(model or (() if artifact else Options.models)),
        artifacts=parse_artifacts(artifact or ()),
        download=download,
        allow_pickle=allow_unsafe_pickle,
        n_prompt=None if n_prompt is None else parse_ints(n_prompt, flag="-p"),
        n_gen=None if n_gen is None else parse_ints(n_gen, flag="-n"),
        n_depth=parse_ints(n_depth, flag="-d"),
        batch=parse_ints(batch, flag="-B", least=1),
        prompt=None if prompt_file is None else read_text(prompt_file),
        kv_cache=("prefix",) if prefix_cache else lists.choices(kv_cache, "--kv-cache", KV_CACHES),  # type: ignore[arg-type]  # each is one of them
        base_url=base_url,
        api_key=api_key,
        rate=rate,
        on=on,
        backends=None if backend is None else lists.words(backend),
        weights=None if weights is None else lists.words(weights),
        device=device,
        n_gpu_layers=parse_ints(n_gpu_layers, flag="-ngl", least=-1),
        n_cpu_moe=parse_ints(n_cpu_moe, flag="-ncmoe"),
        kv_offload=tuple(word == "0" for word in lists.choices(no_kv_offload, "-nkvo", ("0", "1"))),
        split_mode=lists.choices(split_mode, "-sm", SPLIT_MODES),
        tensor_split=((),) if tensor_split is None else lists.splits(tensor_split),
        rpc=() if rpc is None else lists.words(rpc),
        allow_partial=allow_partial,
        n_threads=None if threads is None else parse_ints(threads, flag="-t", least=1),
        flash_attn=lists.choices(flash_attn, "-fa", FLASH_ATTENTION),
        kv_k_format=lists.choices(cache_type_k, "-ctk", KV_FORMATS),
        kv_v_format=lists.choices(cache_type_v, "-ctv", KV_FORMATS),
        cache_kind=lists.words(cache_kind),
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
    if prefix_cache and kv_cache not in ("on", "prefix"):
        raise UserError(f"--prefix-cache means --kv-cache prefix, not {kv_cache}; leave one of them out")
    if dry_run and format != "table":
        raise UserError(f"--dry-run prints a plan for people; --format {format} is for results")
    if SERVER in (options.backends or ()):
        refuse_given(context, f"--backend {SERVER} measures a server with settings of its own", _OF_A_SERVER)
        return _server(options, format, dry_run=dry_run)
    if given := [
        flag for flag, value in (("--base-url", base_url), ("--rate", rate), ("--on", on)) if value is not None
    ]:
        raise UserError(f"{', '.join(given)}: only for a server; add --backend {SERVER}")
    if suite is not None:
        refuse_given(context, f"--suite {suite} is a fixed list of work", _OF_ANY_SUITE)
    if sys.stderr.isatty():
        print("looking at this machine and its engines …", file=sys.stderr, flush=True)
    if suite is not None:
        return _suite(suite_named(suite), options, format, dry_run=dry_run)
    return _engines(options, format, dry_run=dry_run)


def _engines(options: Options, format: Format, *, dry_run: bool) -> int:  # noqa: A002
    from harness.cli.plan_text import plan_text
    from harness.plan import make_plan
    from harness.progress import ConsoleReporter
    from harness.runner import run as run_plan

    with closing(ConsoleReporter()) as reporter:
        plan = make_plan(options, progress=reporter.preparing)
    if dry_run:
        print(plan_text(plan))
        return 0
    return _measure(lambda: run_plan(plan), plan.output, format)


def _server(options: Options, format: Format, *, dry_run: bool) -> int:  # noqa: A002
    from harness.cli.plan_text import serving_plan_text
    from harness.serving.plan import make_plan
    from harness.serving.runner import run as run_plan

    plan = make_plan(options)
    if dry_run:
        print(serving_plan_text(plan))
        return 0
    return _measure(lambda: run_plan(plan), plan.output, format)


def _suite(suite: Suite, options: Options, format: Format, *, dry_run: bool) -> int:  # noqa: A002
    from harness.cli.suite_text import suite_text
    from harness.suites.plan import plan_suite
    from harness.suites.run import run_suite

    plan = plan_suite(suite, options)
    print(suite_text(plan), file=sys.stdout if dry_run else sys.stderr)
    if dry_run:
        return 0
    return _measure(lambda: run_suite(plan), plan.parts[0].plan.output, format)


def _measure(measure: Callable[[], pd.DataFrame], output: Path, format: Format) -> int:  # noqa: A002
    n_before = n_rows(output)
    try:
        rows = measure()
    except KeyboardInterrupt:
        return interrupted(output, n_before, ", --resume goes on")
    return _show(rows, output, format)


def _show(rows: pd.DataFrame, output: Path, format: Format) -> int:  # noqa: A002
    from rich.console import Console

    from reports.agreement import agreement_text
    from reports.breakdown import breakdown_text
    from reports.serving import users_text
    from reports.summary import summarise
    from reports.table import render
    from reports.words import words
    from results.samples import read_samples
    from results.verify import argmax_agreement

    if format == "table" and _is_told(rows):
        if len(rows):
            print(_where(output))
        return 1
    print(render(summarise(rows), format, Console() if format == "table" and sys.stdout.isatty() else None).rstrip())
    if format == "table":
        agreement = agreement_text(argmax_agreement(read_samples(output), rows), words("en"))
        told = [agreement, breakdown_text(rows, words("en")), users_text(rows, words("en")), _where(output)]
        print(*filter(None, told), sep="\n")
    return 1 if (rows["status"] == "failed").any() or not (rows["status"] == "ok").any() else 0


def _is_told(rows: pd.DataFrame) -> bool:
    """Whether a table would only repeat the one reason why nothing was measured."""
    return not (rows["status"] == "ok").any() and rows["error"].nunique() <= 1


def _where(output: Path) -> str:
    intervals = Path(f"{output}.samples.parquet")
    return f"rows in {output}" + (f", intervals in {intervals}" if intervals.exists() else "")
