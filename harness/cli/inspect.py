"""`tokenroof inspect`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from results.amounts import about, counted, significant, size

if TYPE_CHECKING:
    from harness.inspect_model import Inspection, MachineCeiling


def inspect(
    model: Annotated[
        str,
        typer.Argument(
            help="Hugging Face directory or cached repository, .gguf file, ollama:NAME, lmstudio:PUBLISHER/NAME."
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="The same for programs, as JSON.")] = False,
) -> int:
    """Tell what is really in a model's files.

    Their headers are all that is read.
    """
    import json

    from harness.inspect_model import ceilings, inspect_model
    from harness.machine.hardware import inspect as this_machine

    found = inspect_model(model)
    limits = ceilings(found.weights, this_machine())
    if as_json:
        print(json.dumps(_values(found, limits), indent=2, ensure_ascii=False))
    else:
        _print(found, limits)
    return 0


def _values(found: Inspection, limits: list[MachineCeiling]) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "model": found.source.name,
        "path": str(found.source.path),
        "architecture": found.architecture.model_type,
        "n_layers": found.architecture.n_layers,
        "max_context": found.architecture.max_context,
        "quantised_by": found.source.quantised_by,
        "n_params": found.weights.n_params,
        "weight_bytes": found.weights.n_bytes,
        "bits_per_weight": found.bits_per_weight,
        "streamed_bytes_per_token": found.streamed_bytes,
        "idle_bytes": found.idle_bytes,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "full_kv_bytes": found.full_kv_bytes,
        "tensor_types": [asdict(each) for each in found.types],
        "ceilings": [asdict(each) for each in limits],
    }


def _print(found: Inspection, limits: list[MachineCeiling]) -> None:
    from rich.console import Console
    from rich.text import Text

    facts = [*_facts(found), *(("ceiling", line) for line in _ceilings(limits))]
    width = max(len(label) for label, _ in facts)
    console = Console(markup=False, highlight=False)
    for label, fact in facts:
        console.print(Text(f"{label:<{width}}  {fact}"), soft_wrap=True)
    console.print(_table(found))


def _facts(found: Inspection) -> list[tuple[str, str]]:
    arch, weights = found.architecture, found.weights
    context = "not stated" if arch.max_context is None else counted(f"{arch.max_context:,}", "token")
    full = "" if found.full_kv_bytes is None else f"; {size(found.full_kv_bytes)} for the whole context"
    return [
        ("model", found.source.name),
        ("architecture", f"{arch.model_type}, {counted(arch.n_layers, 'layer')}{_experts(found)}"),
        ("context", context),
        *([("quantised by", found.source.quantised_by)] if found.source.quantised_by else []),
        ("weights", f"{about(weights.n_params)} parameters, {size(weights.n_bytes)}"),
        ("true bits", f"{found.bits_per_weight:.2f} a weight, scales included"),
        ("a token reads", f"{size(found.streamed_bytes)} of the weights, beside the KV cache"),
        *([("idle", f"{size(found.idle_bytes)} that decoding does not use")] if found.idle_bytes else []),
        ("KV cache", f"{found.kv_bytes_per_token:,} B a token in f16{full}"),
    ]


def _experts(found: Inspection) -> str:
    networks = [layer.feed_forward for layer in found.architecture.layers if layer.feed_forward.n_experts]
    return f", {networks[0].n_experts_used} of {networks[0].n_experts} experts a token" if networks else ""


def _ceilings(limits: list[MachineCeiling]) -> list[str]:
    if not limits:
        return ["this machine's bandwidth has not been measured: tokenroof machine --measure"]
    lines = []
    for each in limits:
        full = "" if each.full_tok_s is None else f", {_rate(each.full_tok_s)} with the context full"
        lines.append(
            f"{_rate(each.empty_tok_s)} tokens a second on {each.memory} with an empty KV cache{full} "
            f"({significant(each.bandwidth_bytes_s / 1e9)} GB/s measured)"
        )
    return lines


def _rate(tok_s: float) -> str:
    """Thousands with commas, as all counts here."""
    return f"{tok_s:,.0f}" if tok_s >= 1000 else significant(tok_s)


def _table(found: Inspection) -> Any:
    from rich import box
    from rich.table import Table

    total = sum(each.n_bytes for each in found.types)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    table.add_column("tensors of type")
    for heading in ("tensors", "parameters", "bytes", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for each in found.types:
        share = f"{significant(100 * each.n_bytes / total)} %" if total else "-"
        table.add_row(each.name, f"{each.n_tensors:,}", f"{each.n_params:,}", f"{each.n_bytes:,}", share)
    return table
