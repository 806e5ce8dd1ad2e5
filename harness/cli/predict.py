"""`tokenroof predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from harness.errors import UserError
from results.amounts import about, significant, size

if TYPE_CHECKING:
    from rich.table import Table

    from harness.prediction.hardware import Range
    from harness.prediction.offload import Choice, Offload
    from harness.prediction.predict import Prediction
    from harness.prediction.question import Question

_HOST = "ddr5-5600-2ch"
_FEW = 6  # devices


def predict(
    model: Annotated[
        str,
        typer.Option(
            "-m", "--model", metavar="MODEL", help="Preset, config.json, Hugging Face directory or .gguf file."
        ),
    ],
    on: Annotated[
        str | None,
        typer.Option("--on", metavar="DEVICES", help='Catalog ids or names, "RTX 5090,DGX Spark,M5 Ultra"; or all.'),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option("-w", "--weights", metavar="FORMAT", help="q4_k_m, q8_0, bf16, 4bit, … Default: as published."),
    ] = None,
    n_depth: Annotated[
        int, typer.Option("-d", "--n-depth", metavar="N", help="Tokens in the KV cache before the request.")
    ] = 0,
    n_prompt: Annotated[
        int, typer.Option("-p", "--n-prompt", metavar="N", help="Prompt tokens; 0: decode only.")
    ] = 512,
    n_gen: Annotated[int, typer.Option("-n", "--n-gen", metavar="N", help="Tokens to generate.")] = 128,
    cache_type_k: Annotated[
        str, typer.Option("-ctk", "--cache-type-k", metavar="FORMAT", help="Format of cached keys.")
    ] = "f16",
    cache_type_v: Annotated[
        str, typer.Option("-ctv", "--cache-type-v", metavar="FORMAT", help="Format of cached values.")
    ] = "f16",
    bandwidth: Annotated[
        float | None, typer.Option("--bandwidth", metavar="GB/s", help="Of a device that the catalog lacks.")
    ] = None,
    capacity: Annotated[
        float | None, typer.Option("--capacity", metavar="GB", help="Memory that a model can use there.")
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="MEMORY", help="System memory for the layers that do not fit a GPU.")
    ] = _HOST,
    as_json: Annotated[
        bool, typer.Option("--json", help="The same for programs: a list, one object a device.")
    ] = False,
) -> int:
    """Tell what a model would do on a device.

    For that, nobody needs to buy or download anything.
    """
    import json

    from harness.prediction.predict import predict as answer
    from harness.prediction.target import host_memory, targets

    question = _question(model, weights, (n_depth, n_prompt, n_gen), (cache_type_k, cache_type_v))
    devices = targets(on, weights or "bf16", bandwidth, capacity)
    tier = host_memory(host)
    predictions = [answer(question, device, tier) for device in devices]
    if as_json:
        print(json.dumps([_values(question, each) for each in predictions], indent=2, ensure_ascii=False))
    else:
        _print(question, predictions)
    return 0


def _question(model: str, weights: str | None, tokens: tuple[int, int, int], kv_formats: tuple[str, str]) -> Question:
    from harness.models.artifact_weights import weights_of
    from harness.models.source import resolve_shape
    from harness.prediction.question import Question
    from harness.roofline.formats import element_bytes
    from harness.workload import Case

    for flag, count in zip(("-d", "-p", "-n"), tokens, strict=True):
        if not 0 <= count <= 2**27:
            raise UserError(f"{flag} {count}: give a number of tokens, 0 to {2**27}")
    case = Case(*tokens)
    if not case.n_prompt and not case.n_gen:
        raise UserError("-p 0 with -n 0 leaves nothing to predict; give a prompt (-p) or tokens to generate (-n)")
    try:
        k_bytes, v_bytes = map(element_bytes, kv_formats)
    except ValueError as error:
        raise UserError(f"-ctk, -ctv: {error}") from error
    return Question(weights_of(resolve_shape(model), weights), case, k_bytes, v_bytes, weights)


def _values(question: Question, prediction: Prediction) -> dict[str, Any]:
    ceiling, target = prediction.ceiling, prediction.target
    return {
        "device": target.name,
        "device_id": target.device_id,
        "fits": prediction.fits,
        "weight_bytes": question.weights.n_bytes,
        "streamed_bytes_per_token": round(question.weights.streamed_bytes()),
        "kv_bytes_per_token": prediction.kv_bytes_per_token,
        "kv_cache_bytes": prediction.kv_cache_bytes,
        "needed_bytes": prediction.needed_bytes,
        "capacity_bytes": target.capacity_bytes,
        "bandwidth_gbs": None if target.hardware is None else target.hardware.bandwidth_bytes_s / 1e9,
        "max_context": prediction.max_context,
        "gpu_layers": prediction.gpu_layers,
        "offload": _offload_values(prediction.offload),
        "decode_ceiling_tok_s": None if ceiling is None else ceiling.tok_s,
        "decode_tok_s": _range(prediction.decode_tok_s),
        "ttft_s": _range(prediction.ttft_s),
        "request_s": _range(prediction.request_s),
        "bound": prediction.bound,
        "decode_basis": prediction.decode_tok_s and prediction.decode_tok_s.basis,
        "prefill_basis": prediction.ttft_s and prediction.ttft_s.basis,
        "notes": list(prediction.notes),
    }


def _offload_values(offload: Offload | None) -> dict[str, Any] | None:
    if offload is None:
        return None
    names = ("best", "one_gb_more", "experts_on_host")
    return {name: _choice_values(getattr(offload, name)) for name in names}


def _choice_values(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "n_gpu_layers": choice.n_gpu_layers,
        "n_cpu_moe": choice.n_cpu_moe,
        "decode_tok_s": _range(choice.decode_tok_s),
        "host_bytes_per_token": round(choice.host_bytes),
        "host_s_per_token": choice.host_s,
    }


def _range(values: Range | None) -> dict[str, float] | None:
    return None if values is None else {"low": values.low, "mid": values.mid, "high": values.high}


def _print(question: Question, predictions: list[Prediction]) -> None:
    from rich.console import Console
    from rich.text import Text

    weights, case = question.weights, question.case
    first = predictions[0]
    console = Console(markup=False, highlight=False)
    console.print(
        f"{about(weights.n_params)} parameters, {size(weights.n_bytes)} of weights; a token reads "
        f"{size(weights.streamed_bytes())} of them and adds {first.kv_bytes_per_token:,} B to the KV cache. "
        f"{case}: {size(first.kv_cache_bytes)} of KV cache, {size(first.needed_bytes)} in all."
    )
    console.print(_table(predictions), "", sep="\n")
    is_few = len(predictions) <= _FEW  # a reader of the whole catalog does not want a paragraph a device
    for prediction in predictions:
        said = [*prediction.notes, *(_offload_text(prediction.offload) if is_few and prediction.offload else ())]
        if said:
            console.print(Text(f"{prediction.target.name}: {'; '.join(said)}"))
    bases = [
        f"{each.target.name}, {what}: {basis.basis}"
        for each in predictions
        for what, basis in (("decode", each.decode_tok_s), ("prefill", each.ttft_s))
        if basis is not None
    ]
    if is_few:
        console.print(*map(Text, bases), sep="\n")
    console.print(Text("ranges: eight of ten published rates lie within"))


def _offload_text(offload: Offload) -> list[str]:
    """How to place a model that is too large for a GPU, and what another placement would bring."""
    best, more, experts = offload.best, offload.one_gb_more, offload.experts_on_host
    if not best.host_bytes:
        return []
    rate, more_rate = best.decode_tok_s.mid, more.decode_tok_s.mid
    said = [
        f"fastest at -ngl {best.n_gpu_layers}, where a token reads {size(best.host_bytes)} of the host's memory "
        f"in {significant(best.host_s)} s or more",
        f"1 GB more on the GPU: -ngl {more.n_gpu_layers}, {significant(more_rate)} tok/s ({more_rate / rate - 1:+.1%})"
        if more.n_gpu_layers != best.n_gpu_layers
        else "1 GB more on the GPU holds no layer more",
    ]
    if experts is not None:
        said.append(
            f"faster still with all layers on the GPU and the experts of the first {experts.n_cpu_moe} in the host's "
            f"memory: -ngl {experts.n_gpu_layers} --n-cpu-moe {experts.n_cpu_moe}, "
            f"{significant(experts.decode_tok_s.mid)} tok/s"
        )
    return said


def _table(predictions: list[Prediction]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("device", overflow="fold")
    (ttft_scale, ttft_unit), (request_scale, request_unit) = map(
        _seconds, ([each.ttft_s for each in predictions], [each.request_s for each in predictions])
    )
    headings = ("fits", "longest\ncontext", "ceiling\ntok/s", "decode\ntok/s")
    for heading in (*headings, f"TTFT\n{ttft_unit}", f"request\n{request_unit}", "bound by"):
        table.add_column(heading, justify="left" if heading in ("fits", "bound by") else "right", no_wrap=True)
    for each in predictions:
        cells = (
            each.target.name,
            _fits(each),
            "-" if each.max_context is None else str(each.max_context),
            "-" if each.ceiling is None else significant(each.ceiling.tok_s),
            _spread(each.decode_tok_s),
            _spread(each.ttft_s, ttft_scale),
            _spread(each.request_s, request_scale),
            (each.bound or "-").replace(" ", "\n"),
        )
        table.add_row(*map(Text, cells))
    return table


def _fits(prediction: Prediction) -> str:
    """Or how many of the layers do."""
    if prediction.fits is None:
        return "?"
    if prediction.fits:
        return "yes"
    return "no" if prediction.gpu_layers is None else f"{prediction.gpu_layers}\nlayers"


def _seconds(times: list[Range | None]) -> tuple[float, str]:
    """What a column of times is multiplied with, and its unit: milliseconds where all are short."""
    return (1e3, "ms") if all(time.mid < 0.1 for time in times if time is not None) else (1.0, "s")


def _spread(values: Range | None, scale: float = 1.0) -> str:
    """The middle, and below it the range."""
    if values is None:
        return "-"
    return (
        f"{significant(scale * values.mid)}\n{significant(scale * values.low, 2)}–{significant(scale * values.high, 2)}"
    )
