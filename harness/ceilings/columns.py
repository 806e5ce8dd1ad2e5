"""The ceiling columns of a row: what a step had to read and compute, and how fast this machine could have done it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.ceilings.memories import HOST, is_remote
from harness.ceilings.memory_use import MemoryUse, measured_rate, spec_rate
from harness.models.artifact_weights import artifact_weights, weights_in_memory, weights_of
from harness.roofline.ceiling import prefill_ceiling
from harness.roofline.formats import element_bytes
from harness.roofline.recompute import recompute_ceiling
from harness.roofline.traffic import kv_bytes_per_token, prefill_flops
from harness.roofline.weights import expected_experts
from harness.tiers.column import tiers_column
from harness.tiers.placed import placed
from results.amounts import counted
from results.schema import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.ceilings.memories import DeviceMemory
    from harness.models.artifacts import Artifact
    from harness.roofline.ceiling import Share
    from harness.roofline.weights import Weights
    from harness.work import Work
    from harness.workload import Case

Values = dict[str, Any]
Missing = dict[str, str]

CEILING = tuple(column.name for column in COLUMNS if column.group == "ceiling")
_DECODE_MEASURED = (
    *("bandwidth_measured_gbs", "decode_ceiling_tok_s", "decode_ceiling_bound", "decode_ceiling_expected_tok_s", "mbu"),
)
_DECODE = (
    *("kv_read_bytes", "bandwidth_spec_gbs", "decode_ceiling_spec_tok_s", "experts_hit_expected"),
    *_DECODE_MEASURED,
)
_PREFILL = ("prefill_flops", "prefill_ceiling_tok_s", "mfu")
_NO_EXPERTS = "the model has no experts"
# What the ceilings of a case depend on beside it, of what the engine tells.
_DECIDING = ("device", "kv_k_format", "kv_v_format", "weight_format")


class Ceilings:
    """Tells the ceiling columns of the rows of one work.

    Args:
        work, artifact: what runs.
        memories: from `memories.memories`; empty where the work only simulates.

    Attributes:
        weights: of the artifact, then as they are loaded; None where the work only simulates.
    """

    def __init__(self, work: Work, artifact: Artifact, memories: Mapping[str, DeviceMemory]) -> None:
        self._work, self._memories = work, memories
        self._known: dict[tuple[object, ...], tuple[MemoryUse, Values, Missing]] = {}
        self.weights = _weights(work, artifact) if memories else None

    def loaded(self, held: Sequence[Mapping[str, Any]] | None) -> None:
        """Go by what the engine has in memory.

        Args:
            held: `backends.base.Held` of each module, as the worker tells them; None: the engine cannot tell.
        """
        if held is not None and self.weights is not None:
            self.weights = weights_in_memory(held, self.weights.architecture)
            self._known.clear()

    def columns(
        self, case: Case, facts: Mapping[str, Any], rates: Mapping[str, float], kept_tokens: int | None = None
    ) -> tuple[Values, Missing]:
        """The columns of one measured repetition.

        Args:
            case: the work that was done.
            facts: `backends.base.Facts` as the worker tells them.
            rates: `decode_tok_s` and `prefill_tok_s` where they were measured.
            kept_tokens: of a prefix that was to be reused; None where none was.

        Returns:
            column -> value, and column -> why there is none.
        """
        found = self._found(case, facts, kept_tokens)
        if isinstance(found, str):
            return {}, dict.fromkeys(CEILING, found)
        _, known, missing = found
        return _with_utilisations(known, missing, rates)

    def tiers(self, case: Case, facts: Mapping[str, Any], kv_cache_bytes: int | None) -> list[Values] | None:
        """The column `tiers` of one measured repetition; None for a simulated engine, which has no memory.

        Args:
            case: the work that was done.
            facts: `backends.base.Facts` as the worker tells them.
            kv_cache_bytes: of an engine that holds all in one memory; None: unknown.
        """
        if self.weights is None:
            return None
        found = self._found(case, facts, None)
        use = None if isinstance(found, str) else found[0]
        return tiers_column(facts, self.weights.architecture.n_layers, kv_cache_bytes, self._memories, use)

    def _found(
        self, case: Case, facts: Mapping[str, Any], kept_tokens: int | None
    ) -> tuple[MemoryUse, Values, Missing] | str:
        """What a case's repetitions share, or why it has no ceilings.

        Worked out once, while the worker times the next repetition.
        """
        if self.weights is None:
            return "a simulated engine reads no memory"
        try:
            k_bytes, v_bytes = element_bytes(facts["kv_k_format"]), element_bytes(facts["kv_v_format"])
        except ValueError as error:
            return f"KV cache: {error}"
        settings = facts.get("engine_settings", {})
        if "not_honoured" in settings:
            return f"the model lies otherwise than asked: {settings['not_honoured']}"
        parts = placed(self._work, facts, self.weights.architecture.n_layers)
        used = {each.memory for each in parts}
        if self._work.settings.split_mode == "row" and len(used - {HOST}) > 1:
            return "each layer's rows lie on several devices (-sm row): what each of them reads is not known"
        if unknown := used - self._memories.keys():
            return f"nothing is known of the memory of {', '.join(sorted(unknown))}"
        key = (case, kept_tokens, *parts, *(facts.get(name) for name in _DECIDING))
        if key not in self._known:
            helpers = self._helpers() if settings.get("op_offload") else ()
            run = MemoryUse(
                self.weights, case, k_bytes, v_bytes, tuple(parts), facts["weight_format"], kept_tokens,
                self._memories, helpers,
            )  # fmt: skip
            self._known[key] = (run, *_ceilings(run))
        return self._known[key]

    def _helpers(self) -> tuple[DeviceMemory, ...]:
        """GPUs to which llama.cpp sends weights of the host when it computes many tokens at once."""
        return tuple(self._memories[each.id] for each in self._work.accelerators if not is_remote(each))


def of_use(use: MemoryUse, rates: Mapping[str, float]) -> tuple[Values, Missing]:
    """The columns of what is read and computed, whoever did it.

    Args:
        use: the model, the case and the memories.
        rates: `decode_tok_s` and `prefill_tok_s` where they were measured.
    """
    return _with_utilisations(*_ceilings(use), rates)


def _with_utilisations(known: Values, missing: Missing, rates: Mapping[str, float]) -> tuple[Values, Missing]:
    values = known | _utilisations(known, rates)
    warning = "; ".join(_warnings(values))
    return values | ({"ceiling_warning": warning} if warning else {}), missing


def _weights(work: Work, artifact: Artifact) -> Weights:
    """As the engine loads them: a GGUF file or a quantised copy as it is, a Hugging Face directory converted."""
    if work.artifact_kind == "gguf" or work.has_quantised_copy:
        return artifact_weights(artifact.path, work.source.architecture)
    return weights_of(work.source, work.roofline_format)


def _ceilings(run: MemoryUse) -> tuple[Values, Missing]:
    arch, at_measured = run.weights.architecture, run.shares(measured_rate)
    decode, no_decode = _decode(run, at_measured)
    prefill, no_prefill = _prefill(run, at_measured)
    values = {
        "streamed_bytes_per_token": round(run.weights.streamed_bytes()),
        "kv_bytes_per_token": round(kv_bytes_per_token(arch, run.k_bytes, run.v_bytes)),
        "bandwidth_source": "; ".join(dict.fromkeys(map(_source, run.used))),
    }
    return values | decode | prefill, no_decode | no_prefill


def _utilisations(ceilings: Values, rates: Mapping[str, float]) -> Values:
    shares = (("mbu", "decode_tok_s", "decode_ceiling_tok_s"), ("mfu", "prefill_tok_s", "prefill_ceiling_tok_s"))
    return {
        column: rates[rate] / ceilings[ceiling]
        for column, rate, ceiling in shares
        if ceiling in ceilings and rate in rates
    }


def _decode(run: MemoryUse, at_measured: list[Share] | None) -> tuple[Values, Missing]:
    case = run.case
    if not case.n_steps:
        return {}, dict.fromkeys(_DECODE, "no decode step was timed")
    if case.kv_cache == "off":
        return _recompute(run, at_measured)
    all_layers = range(run.weights.architecture.n_layers)
    values: Values = {"kv_read_bytes": round(run.kv_bytes(all_layers))}
    missing: Missing = {}
    if run.weights.architecture.is_mixture:
        values["experts_hit_expected"] = expected_experts(run.weights.architecture, case.batch)
    else:
        missing["experts_hit_expected"] = _NO_EXPERTS
    if shares := run.shares(spec_rate):
        values["bandwidth_spec_gbs"] = run.together_bytes_s(spec_rate) / 1e9
        values["decode_ceiling_spec_tok_s"] = run.decode_ceiling(shares).tok_s
    else:
        why = next(memory.spec_source for memory in run.used if memory.spec_bytes_s is None)
        missing |= dict.fromkeys(("bandwidth_spec_gbs", "decode_ceiling_spec_tok_s"), why)
    if at_measured:
        ceiling = run.decode_ceiling(at_measured)
        values |= {
            "bandwidth_measured_gbs": run.together_bytes_s(measured_rate) / 1e9,
            "decode_ceiling_tok_s": ceiling.tok_s,
            "decode_ceiling_bound": ceiling.bound,
        }
        if run.weights.architecture.is_mixture:
            values["decode_ceiling_expected_tok_s"] = ceiling.expected_tok_s
        else:
            missing["decode_ceiling_expected_tok_s"] = _NO_EXPERTS
    else:
        missing |= dict.fromkeys(_DECODE_MEASURED, _unmeasured(run))
    return values, missing


def _recompute(run: MemoryUse, at_measured: list[Share] | None) -> tuple[Values, Missing]:
    """Of steps that are each a prefill of their whole prefix: there is no cache to read."""
    case = run.case
    missing = dict.fromkeys(_DECODE, "without a KV cache each step is a prefill of its whole prefix")
    if not at_measured:
        return {}, missing | dict.fromkeys(("decode_ceiling_tok_s", "decode_ceiling_bound", "mbu"), _unmeasured(run))
    ceiling = recompute_ceiling(at_measured, first=case.decode_start + 1, n_steps=case.n_steps, batch=case.batch)
    if ceiling is None:
        why = f"no rate of matrix products is measured for {run.weight_format} weights"
        return {}, missing | dict.fromkeys(("decode_ceiling_tok_s", "decode_ceiling_bound", "mbu"), why)
    values = {"decode_ceiling_tok_s": ceiling.tok_s, "decode_ceiling_bound": ceiling.bound}
    return values, {column: why for column, why in missing.items() if column not in {*values, "mbu"}}


def _prefill(run: MemoryUse, at_measured: list[Share] | None) -> tuple[Values, Missing]:
    case = run.case
    if not case.n_prompt:
        return {}, dict.fromkeys(_PREFILL, "no prompt (-p 0)")
    if run.kept_tokens is not None and run.kept_tokens < case.n_depth:
        why = f"the engine kept {counted(run.kept_tokens, 'token')} of the prefix and filled the others again"
        return {}, dict.fromkeys(_PREFILL, why)
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


def _source(memory: DeviceMemory) -> str:
    measured = memory.measured
    parts = [f"vendor: {memory.spec_source}"]
    if measured:
        parts.append(f"measured {measured.measured_at[:10]}{'' if measured.stable else ', unsteadily'}")
    return f"{memory.name}: {', '.join(parts)}"


def _unmeasured(run: MemoryUse) -> str:
    return next(memory.unmeasured or "" for memory in run.used if memory.measured is None)


def _warnings(values: Values) -> list[str]:
    above = (("mbu", "decode"), ("mfu", "prefill"))
    return [
        f"{what} at {100 * values[column]:.1f} % of its ceiling: measure the idle machine anew "
        "(tokenroof machine --measure); if that does not mend it, we count wrongly"
        for column, what in above
        if values.get(column, 0) > 1
    ]
