"""The ceiling columns of a row: what a step had to read and compute, and how fast this machine could have done it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.registry import BACKENDS
from harness.memories import HOST
from harness.models.artifact_weights import artifact_weights, weights_of
from harness.roofline.ceiling import Memory, Share, decode_ceiling, prefill_ceiling
from harness.roofline.formats import element_bytes
from harness.roofline.placement import places
from harness.roofline.traffic import kv_bytes_per_token, kv_read_bytes, prefill_flops
from results.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.memories import DeviceMemory
    from harness.models.source import Artifact
    from harness.roofline.ceiling import Ceiling
    from harness.roofline.weights import Weights
    from harness.work import Work
    from harness.workload import Case

Values = dict[str, Any]
Missing = dict[str, str]

CEILING = tuple(column.name for column in COLUMNS if column.group == "ceiling")
_DECODE_MEASURED = (
    *("bandwidth_measured_gbs", "decode_ceiling_tok_s", "decode_ceiling_bound", "decode_ceiling_expected_tok_s", "mbu"),
)
_DECODE = ("kv_read_bytes", "bandwidth_spec_gbs", "decode_ceiling_spec_tok_s", *_DECODE_MEASURED)
_PREFILL = ("prefill_flops", "prefill_ceiling_tok_s", "mfu")
# What the ceilings of a case depend on beside it, of what the engine tells.
_DECIDING = ("device", "gpu_layers_effective", "kv_k_format", "kv_v_format", "weight_format")
_HALF_PRECISION = {"bf16", "f16"}


class Ceilings:
    """Tells the ceiling columns of the rows of one work.

    Args:
        work, artifact: what runs.
        memories: from `memories.memories`; empty where the work only simulates.
    """

    def __init__(self, work: Work, artifact: Artifact, memories: Mapping[str, DeviceMemory]) -> None:
        self._work, self._memories = work, memories
        self._known: dict[tuple[object, ...], tuple[Values, Missing]] = {}
        if memories:
            self._weights = _weights(work, artifact)

    def columns(self, case: Case, facts: Mapping[str, Any], rates: Mapping[str, float]) -> tuple[Values, Missing]:
        """The columns of one measured repetition.

        Args:
            case: the work that was done.
            facts: `backends.base.Facts` as the worker tells them.
            rates: `decode_tok_s` and `prefill_tok_s` where they were measured.

        Returns:
            column -> value, and column -> why there is none.
        """
        if not self._memories:
            return {}, dict.fromkeys(CEILING, "a simulated engine reads no memory")
        try:
            k_bytes, v_bytes = element_bytes(facts["kv_k_format"]), element_bytes(facts["kv_v_format"])
        except ValueError as error:
            return {}, dict.fromkeys(CEILING, f"KV cache: {error}")
        # Repetitions of a case share their ceilings: these are worked out while the worker times the next one.
        key = (case, *(facts.get(name) for name in _DECIDING))
        if key not in self._known:
            run = _Run(self._weights, case, k_bytes, v_bytes, self._parts(facts), facts["weight_format"])
            self._known[key] = _ceilings(run)
        known, missing = self._known[key]
        values = known | _utilisations(known, rates)
        warning = "; ".join(_warnings(values))
        return values | ({"ceiling_warning": warning} if warning else {}), missing

    def _parts(self, facts: Mapping[str, Any]) -> list[tuple[DeviceMemory, range, bool]]:
        """Which memory holds which layers, and the output layer, in the order of a step."""
        n_layers, host = self._weights.architecture.n_layers, self._memories[HOST]
        accelerator = self._work.accelerator
        if facts["device"] == "cpu" or accelerator is None:
            return [(host, range(n_layers), True)]
        device = self._memories[accelerator.name]
        on_gpu = facts["gpu_layers_effective"] if BACKENDS[self._work.backend].places_layers else n_layers + 1
        held = places(n_layers, on_gpu)
        return [(device if place.on_gpu else host, place.layers, place.output) for place in held]


@dataclass(frozen=True)
class _Run:
    """One repetition's work, and where each part of the model lay."""

    weights: Weights
    case: Case
    k_bytes: float
    v_bytes: float
    parts: list[tuple[DeviceMemory, range, bool]]
    weight_format: str

    @property
    def used(self) -> list[DeviceMemory]:
        """The memories that hold something."""
        return [memory for memory, _, _ in self.parts]

    def step_bytes(self, layers: range, *, output: bool) -> float:
        """Bytes that an average timed decode step reads of these layers."""
        return self.weights.streamed_bytes(1, layers, output=output) + self.kv_bytes(layers)

    def kv_bytes(self, layers: range) -> float:
        """Bytes of KV cache that an average timed decode step reads of these layers, all sequences."""
        case, arch = self.case, self.weights.architecture
        contexts = np.arange(case.decode_start, case.decode_start + case.n_steps)
        return case.batch * float(kv_read_bytes(arch, contexts, self.k_bytes, self.v_bytes, layers).mean())

    def shares(self, bandwidth: Callable[[DeviceMemory, float], float | None]) -> list[Share] | None:
        """The parts at a bandwidth; None where one memory has none.

        Args:
            bandwidth: of a memory, for as many bytes as a step reads there.
        """
        shares = []
        for memory, layers, output in self.parts:
            n_bytes = self.step_bytes(layers, output=output) if self.case.n_steps else self.weights.n_bytes
            if (bytes_s := bandwidth(memory, n_bytes)) is None:
                return None
            tier = Memory(memory.name, bytes_s, _matrix_rate(memory, self.weight_format))
            shares.append(Share(tier, self.weights, layers, output))
        return shares

    def decode_ceiling(self, shares: list[Share]) -> Ceiling:
        """Of the timed steps."""
        return decode_ceiling(
            shares,
            decode_start=self.case.decode_start,
            n_steps=self.case.n_steps,
            batch=self.case.batch,
            k_element_bytes=self.k_bytes,
            v_element_bytes=self.v_bytes,
        )


def _weights(work: Work, artifact: Artifact) -> Weights:
    """As the engine loads them: a GGUF file as it is, a Hugging Face directory converted."""
    if work.artifact_kind == "gguf":
        return artifact_weights(artifact.path, work.source.architecture)
    return weights_of(work.source, work.settings.weights)


def _ceilings(run: _Run) -> tuple[Values, Missing]:
    arch, at_measured = run.weights.architecture, run.shares(_measured)
    decode, no_decode = _decode(run, at_measured)
    prefill, no_prefill = _prefill(run, at_measured)
    values = {
        "streamed_bytes_per_token": round(run.weights.streamed_bytes()),
        "kv_bytes_per_token": round(kv_bytes_per_token(arch, run.k_bytes, run.v_bytes)),
        "bandwidth_source": "; ".join(map(_source, run.used)),
    }
    return values | decode | prefill, no_decode | no_prefill


def _utilisations(ceilings: Values, rates: Mapping[str, float]) -> Values:
    shares = (("mbu", "decode_tok_s", "decode_ceiling_tok_s"), ("mfu", "prefill_tok_s", "prefill_ceiling_tok_s"))
    return {column: rates[rate] / ceilings[ceiling] for column, rate, ceiling in shares if ceiling in ceilings}


def _decode(run: _Run, at_measured: list[Share] | None) -> tuple[Values, Missing]:
    case = run.case
    if not case.n_steps:
        return {}, dict.fromkeys(_DECODE, "no decode step was timed")
    all_layers = range(run.weights.architecture.n_layers)
    values: Values = {"kv_read_bytes": round(run.kv_bytes(all_layers))}
    missing: Missing = {}
    if shares := run.shares(_spec):
        values["bandwidth_spec_gbs"] = _together(run, shares) / 1e9
        values["decode_ceiling_spec_tok_s"] = run.decode_ceiling(shares).tok_s
    else:
        why = next(memory.spec_source for memory in run.used if memory.spec_bytes_s is None)
        missing |= dict.fromkeys(("bandwidth_spec_gbs", "decode_ceiling_spec_tok_s"), why)
    if at_measured:
        ceiling = run.decode_ceiling(at_measured)
        values |= {
            "bandwidth_measured_gbs": _together(run, at_measured) / 1e9,
            "decode_ceiling_tok_s": ceiling.tok_s,
            "decode_ceiling_bound": ceiling.bound,
        }
        if run.weights.architecture.is_mixture:
            values["decode_ceiling_expected_tok_s"] = ceiling.expected_tok_s
        else:
            missing["decode_ceiling_expected_tok_s"] = "the model has no experts"
    else:
        missing |= dict.fromkeys(_DECODE_MEASURED, _unmeasured(run))
    return values, missing


def _prefill(run: _Run, at_measured: list[Share] | None) -> tuple[Values, Missing]:
    case = run.case
    if not case.n_prompt:
        return {}, dict.fromkeys(_PREFILL, "no prompt (-p 0)")
    values: Values = {"prefill_flops": prefill_flops(run.weights.architecture, case.n_prompt, case.n_depth, case.batch)}
    if not at_measured:
        return values, dict.fromkeys(_PREFILL[1:], _unmeasured(run))
    ceiling = prefill_ceiling(
        at_measured,
        prompt=case.n_prompt,
        depth=case.n_depth,
        batch=case.batch,
        k_element_bytes=run.k_bytes,
        v_element_bytes=run.v_bytes,
    )
    if ceiling is None:
        why = f"no rate of matrix products is measured for {run.weight_format} weights"
        return values, dict.fromkeys(_PREFILL[1:], why)
    return values | {"prefill_ceiling_tok_s": ceiling}, {}


def _together(run: _Run, shares: list[Share]) -> float:
    """One bandwidth for several memories that work one after the other: all bytes over all time."""
    sizes = [run.step_bytes(share.layers, output=share.output) for share in shares]
    return sum(sizes) / sum(size / share.memory.bandwidth_bytes_s for size, share in zip(sizes, shares, strict=True))


def _spec(memory: DeviceMemory, _: float) -> float | None:
    return memory.spec_bytes_s


def _measured(memory: DeviceMemory, n_bytes: float) -> float | None:
    return memory.measured.curve.at(n_bytes) if memory.measured else None


def _matrix_rate(memory: DeviceMemory, weight_format: str) -> float | None:
    """The best that an engine may compute these weights in: half precision in any type, float32 in its own.

    Quantised weights may be multiplied as integers, whose rate nothing here measures.
    """
    rates = memory.measured.matrix if memory.measured else {}
    if weight_format == "f32":
        return rates["f32"].best if "f32" in rates else None
    return max((rate.best for rate in rates.values()), default=None) if weight_format in _HALF_PRECISION else None


def _source(memory: DeviceMemory) -> str:
    measured = memory.measured
    parts = [f"vendor: {memory.spec_source}"]
    if measured:
        parts.append(f"measured {measured.measured_at[:10]}{'' if measured.stable else ', unsteadily'}")
    return f"{memory.name}: {', '.join(parts)}"


def _unmeasured(run: _Run) -> str:
    return next(memory.unmeasured or "" for memory in run.used if memory.measured is None)


def _warnings(values: Values) -> list[str]:
    above = (("mbu", "decode"), ("mfu", "prefill"))
    return [
        f"{what} at {values[column]:.1%} of its ceiling: measure the idle machine anew (tokenroof machine --measure); "
        "if that does not mend it, we count wrongly"
        for column, what in above
        if values.get(column, 0) > 1
    ]
