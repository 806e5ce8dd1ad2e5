"""The ceiling beside a server's rate: of the model that -m names, in the memory that --on names or this machine has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from backends.gguf_file_type import file_type_name
from harness.ceilings.columns import CEILING, Missing, Values, of_use
from harness.ceilings.memories import HOST, DeviceMemory, memory_of
from harness.ceilings.memory_use import MemoryUse
from harness.errors import UserError
from harness.models.artifact_weights import gguf_header, weights_of
from harness.models.sizes import native_format
from harness.tiers.placed import Placed
from results.amounts import size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.models.source import ModelSource
    from harness.progress import Reporter
    from harness.roofline.weights import Weights
    from harness.serving.plan import ServingPlan
    from harness.serving.told import Told
    from harness.workload import Case

KV_ELEMENT_BYTES = 2  # f16 or bf16: every known server's own choice
KV_ASSUMED = "assumed: a KV cache of two bytes an element, which servers have unless they are told otherwise"
_SAME_SIZE = 0.03


class ServingCeilings:
    """Tells the ceiling columns of a server's rows.

    Args:
        plan: what runs.
        told: what the server says of itself.
        reporter: told while the bandwidth is measured.
    """

    def __init__(self, plan: ServingPlan, told: Told, reporter: Reporter) -> None:
        self._memory: DeviceMemory | None = None
        self._weight_format = plan.weights or ""
        self._comes_by_chance = plan.rate is not None
        self._weights, self._why = _weights(plan, told)
        if self._weights is None:
            return
        if plan.source and not plan.weights:
            self._weight_format = _own_format(plan.source)
        self._memory, self._why = _memory(plan, reporter)

    def columns(self, case: Case, rates: Mapping[str, float], kept_tokens: int | None) -> tuple[Values, Missing]:
        """The columns of one measured repetition.

        Args:
            case: the work that was done.
            rates: `decode_tok_s` where it was measured.
            kept_tokens: of a prefix that was cached.

        Returns:
            column -> value, and column -> why there is none.
        """
        if self._weights is None or self._memory is None:
            return {}, dict.fromkeys(CEILING, self._why)
        if self._comes_by_chance and "decode_tok_s" not in rates:
            return {}, dict.fromkeys(CEILING, "requests came by chance, and never all of them decoded at once")
        parts = (Placed(HOST, range(self._weights.architecture.n_layers), output=True),)
        use = MemoryUse(
            self._weights, case, KV_ELEMENT_BYTES, KV_ELEMENT_BYTES, parts, self._weight_format, kept_tokens,
            {HOST: self._memory}, (),
        )  # fmt: skip
        values, missing = of_use(use, rates)
        missing["mfu"] = "a client's TTFT is not the time of a prefill"
        if "decode_tok_s" not in rates:
            missing.setdefault("mbu", "there is no decode rate")
        return values, missing

    def model_facts(self) -> dict[str, Any]:
        """Columns of the model, by its files or shape."""
        if self._weights is None:
            return {}
        return {
            "n_params": self._weights.n_params,
            "weight_bytes": self._weights.n_bytes,
            "weight_format": self._weight_format or None,
        }


def _own_format(source: ModelSource) -> str:
    """Of its files; "" where a GGUF file states none."""
    if source.origin != "gguf" or source.path is None:
        return native_format(source)
    stated = gguf_header(source.path).metadata.get("general.file_type")
    return (file_type_name(stated) or "") if isinstance(stated, int) else ""


def _weights(plan: ServingPlan, told: Told) -> tuple[Weights | None, str]:
    source = plan.source
    if source is None:
        return None, f"-m {plan.model} names no shape that is known here, so the bytes of a step are not known"
    if source.origin in ("preset", "config") and plan.weights is None:
        return None, "which weight format the server holds is not known: name it with -w"
    try:
        weights = weights_of(source, plan.weights)
    except UserError as error:
        return None, str(error)
    if told.weight_bytes and abs(told.weight_bytes / weights.n_bytes - 1) > _SAME_SIZE:
        named = f"{plan.model} in {plan.weights}" if plan.weights else plan.model
        return None, (
            f"the server holds {size(told.weight_bytes)} of weights, and {named} is {size(weights.n_bytes)}: "
            "another model or format"
        )
    return weights, ""


def _memory(plan: ServingPlan, reporter: Reporter) -> tuple[DeviceMemory | None, str]:
    if plan.device:
        bandwidth = plan.device.bandwidth_bytes_s
        source = f"catalog {plan.device.id}" if bandwidth else "the catalog has no bandwidth of it"
        elsewhere = "the memory of another machine cannot be measured from here"
        return DeviceMemory(plan.device.name, bandwidth, source, None, elsewhere), ""
    if plan.machine is None:
        return None, "which memory the server reads is not known: name its device with --on"
    if plan.machine.gpus:
        return None, f"this machine has a {plan.machine.gpus[0].name}: --on says whether the server reads its memory"
    return memory_of(plan.machine, None, (), reporter), ""
