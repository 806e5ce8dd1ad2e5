"""What the harness knows of imported rows: names the source lacked, and ceilings where model and device are known.

llama.cpp's architecture label and number of parameters name a preset's shape; the shape in the label's mixture, scaled
to the size that was told, gives the bytes a step streams. That is an estimate, and `derived` says so.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from harness.errors import TokenroofError, UserError
from harness.machine.catalog import find
from harness.models.presets import PRESETS
from harness.roofline.ceiling import Memory, decode_ceiling, whole
from harness.roofline.formats import element_bytes
from harness.roofline.gguf_names import NAMES
from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import WEIGHT_FORMATS, nominal_weights
from harness.roofline.traffic import kv_bytes_per_token, kv_read_bytes, prefill_flops
from harness.roofline.weights import Weights
from results.machine_label import machine_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harness.machine.device import Device

Row = dict[str, Any]

_GGUF_LLAMA = {"llama", "mistral", "mixtral"}  # model types that GGUF calls llama
_SAME_SIZE = 0.003  # a table rounds to three digits, and GGUF may hold a few vectors more
_SAME_FORMAT = 1.4  # a file further from its mixture's nominal size holds something else
_MOST_TOKENS = 2**24  # a claim beyond it is no measurement
_DEFAULT_KV_FORMAT = "f16"  # llama.cpp's, which its table does not show


def complete(
    rows: Iterable[Row], name: str, *, machine: str | None = None, device: str | None = None, model: str | None = None
) -> list[Row]:
    """Imported rows with what the user tells beyond their source, and with ceilings.

    Args:
        rows: from `results.importers`.
        name: of their file, for messages.
        machine: label of the machine, in place of one made from its device.
        device: product name of the device that ran the model.
        model: for sources that do not name it.

    Raises:
        UserError: machine or model is told by nobody.
    """
    return [_with_ceiling(_named(row, name, machine, device, model)) for row in rows]


def complete_published(rows: Iterable[Row]) -> list[Row]:
    """Published rows with the catalog's names and bandwidths; their bytes a step come with them."""
    return [_published(row) for row in rows]


def _named(row: Row, name: str, machine: str | None, device: str | None, model: str | None) -> Row:
    told = {
        "machine": machine or (machine_label(device) if device else row.get("machine")),
        "model": row.get("model") or model,
        "device_name": device or row.get("device_name"),
    }
    if not told["machine"]:
        raise UserError(f"{name}: {row['source']} does not name the machine here; add --machine LABEL or --device NAME")
    if not told["model"]:
        raise UserError(f"{name}: {row['source']} does not name the model; add --model NAME")
    return row | {column: value for column, value in told.items() if value}


def _with_ceiling(row: Row) -> Row:
    label = row.get("architecture")
    row = row | ({"architecture": NAMES[label].model_type} if label in NAMES else {})
    estimated = _estimated_weights(label, row)
    if estimated is None or max(row["n_depth"], row["n_prompt"], row["n_gen"]) > _MOST_TOKENS:
        return row
    preset, weights = estimated
    formats = [row.get(column) or _DEFAULT_KV_FORMAT for column in ("kv_k_format", "kv_v_format")]
    try:
        k_bytes, v_bytes = map(element_bytes, formats)
    except ValueError:
        return row
    how = f"estimated: the shape of {preset} at {row['weight_bytes']} B, KV cache in {formats[0]} and {formats[1]}"
    values: Row = {
        "streamed_bytes_per_token": round(weights.streamed_bytes()),
        "kv_bytes_per_token": round(kv_bytes_per_token(weights.architecture, k_bytes, v_bytes)),
    }
    start, n_gen, batch = row.get("decode_start", 0), row["n_gen"], row["batch"]
    if row["n_prompt"]:
        values["prefill_flops"] = prefill_flops(weights.architecture, row["n_prompt"], row["n_depth"], batch)
    if n_gen:
        contexts = list(range(start, start + n_gen))
        values["kv_read_bytes"] = round(batch * kv_read_bytes(weights.architecture, contexts, k_bytes, v_bytes).mean())
    device = _only_device(row, weights.architecture.n_layers)
    if n_gen and device and device.bandwidth_bytes_s:
        ceiling = decode_ceiling(
            whole(weights, Memory(device.name, device.bandwidth_bytes_s)),
            decode_start=start,
            n_steps=n_gen,
            batch=batch,
            k_element_bytes=k_bytes,
            v_element_bytes=v_bytes,
        )
        values |= _at_spec(device, ceiling.tok_s)
    derived = {name: how for name in values if not name.startswith("bandwidth_")}
    return row | values | {"derived": row.get("derived", {}) | derived}


def _estimated_weights(label: str | None, row: Row) -> tuple[str, Weights] | None:
    """A preset's name and its weights at the size that was told; None where the model is not known."""
    n_params, n_bytes, weight_format = (row.get(name) for name in ("n_params", "weight_bytes", "weight_format"))
    if label is None or not n_params or not n_bytes or weight_format not in WEIGHT_FORMATS:
        return None
    model_types = _GGUF_LLAMA if label == "llama" else {NAMES[label].model_type if label in NAMES else label}
    sizes = {
        preset: abs(size - n_params) / n_params
        for preset, (model_type, size) in _preset_sizes().items()
        if model_type in model_types
    }
    nearest = min(sizes, key=sizes.__getitem__, default=None)
    if nearest is None or sizes[nearest] > _SAME_SIZE:
        return None
    nominal = nominal_weights(from_hf_config(PRESETS[nearest]), weight_format)
    scale = n_bytes / nominal.n_bytes
    if not 1 / _SAME_FORMAT < scale < _SAME_FORMAT:
        return None
    parts = tuple(replace(part, n_bytes=round(part.n_bytes * scale)) for part in nominal.parts)
    return nearest, Weights(nominal.architecture, parts)


@functools.cache
def _preset_sizes() -> dict[str, tuple[str, int]]:
    """Model type and number of parameters of each preset."""
    shapes = {name: from_hf_config(config) for name, config in PRESETS.items()}
    return {name: (shape.model_type, nominal_weights(shape, "bf16").n_params) for name, shape in shapes.items()}


def _only_device(row: Row, n_layers: int) -> Device | None:
    """The catalog's device that held the whole model; None where several memories did, or it is not known."""
    settings, n_gpu_layers = row.get("engine_settings", {}), row.get("n_gpu_layers")
    on_gpu = n_gpu_layers is not None and (n_gpu_layers == -1 or n_gpu_layers > n_layers)
    split = (
        str(settings.get("n_cpu_moe", 0)) != "0"
        or settings.get("tensor_buft_overrides", "none") != "none"
        or str(settings.get("no_kv_offload", 0)) not in {"0", "False"}
        or "RPC" in str(settings.get("backends", ""))
        or ", " in row.get("device_name", "")  # llama-bench's list of GPUs
    )
    return _device(row) if (on_gpu or row.get("device") == "cpu") and not split else None


def _device(row: Row) -> Device | None:
    try:
        return find(row.get("device_name", ""))
    except TokenroofError:  # none of that name, or several
        return None


def _at_spec(device: Device, tok_s: float) -> Row:
    bandwidth_bytes_s = device.bandwidth_bytes_s or 0
    return {
        "bandwidth_spec_gbs": bandwidth_bytes_s / 1e9,
        "bandwidth_source": f"{device.name}: vendor: {device.bandwidth_source}",
        "decode_ceiling_spec_tok_s": tok_s,
    }


def _published(row: Row) -> Row:
    device = _device(row)
    if device is None:
        return row
    step_bytes = row["streamed_bytes_per_token"] + row["kv_read_bytes"]
    ceiling = _at_spec(device, device.bandwidth_bytes_s / step_bytes) if device.bandwidth_bytes_s else {}
    return row | {"device_name": device.name} | ceiling
