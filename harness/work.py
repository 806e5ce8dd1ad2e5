"""One worker's job, but for its cases: a model, an engine, and the settings asked of it."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from backends.registry import BACKENDS
from harness import estimate
from harness.machine.hardware import physical_cores
from harness.models.artifact_weights import is_plain
from harness.models.sizes import n_params, native_format, weight_bytes
from harness.quantise import names
from harness.roofline.nominal import PLAIN
from harness.tiers.endpoints import shown
from results.asked import flags_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from backends.base import Accelerator, EngineInfo
    from backends.registry import Kind
    from harness.models.source import ModelSource
    from harness.options import Options
    from harness.workload import Case

_DEFAULT_WEIGHTS = "bf16"
# Settings of which one run may hold several.
_LISTS = frozenset(
    {"-t", "-ngl", "-ncmoe", "-nkvo", "-sm", "-ts", "-fa", "-ctk", "-ctv", "--cache-kind", "-b", "-ub"},
)


@dataclass(frozen=True)
class Settings:
    """What is asked of an engine. A setting that the engine does not have stays at its neutral value."""

    weights: str | None  # None: as the .gguf file is
    device: str
    n_threads: int
    n_gpu_layers: int
    flash_attn: str
    kv_k_format: str
    kv_v_format: str
    n_batch: int
    n_ubatch: int
    n_cpu_moe: int = 0
    kv_offload: bool = True
    split_mode: str = "layer"
    tensor_split: tuple[float, ...] = ()
    rpc: tuple[str, ...] = ()
    allow_partial: bool = False
    cache_kind: str = "auto"
    prompt: str = ""  # the text's label, of a run with a text in place of random ids

    def asked(self) -> dict[str, Any]:
        """For the row: what was asked, beside what was got.

        What has a neutral value by itself is there only where something else was asked, so that rows from before it
        was invented ask for the same.
        """
        told = asdict(self) | {"tensor_split": list(self.tensor_split), "rpc": [shown(each) for each in self.rpc]}
        neutral = {each.name: each.default for each in fields(self)}
        return {name: value for name, value in told.items() if value not in ([], neutral[name])}


@dataclass(frozen=True)
class Work:
    """A model in an engine with its settings; a worker is started for each, in every launch."""

    source: ModelSource
    backend: str
    settings: Settings
    engine: EngineInfo
    rates: estimate.Rates

    @property
    def is_quantised_here(self) -> bool:
        """Whether its engine makes itself the model in fewer bits."""
        return self.settings.weights not in (None, *PLAIN)

    @property
    def has_quantised_copy(self) -> bool:
        """Whether that is a file, which is kept; else it is made in memory, in each launch."""
        return self.is_quantised_here and not BACKENDS[self.backend].quantises_at_load

    @property
    def exported_format(self) -> str | None:
        """Of the GGUF file that is written, and quantised where that is asked; None where there is none to write."""
        if self.artifact_kind != "gguf":
            return None
        return self.original_weights if self.is_quantised_here else self.settings.weights

    @property
    def original_weights(self) -> str | None:
        """The setting `weights` that rounds nothing: the model's own format; None: as the .gguf file is."""
        return None if self.source.origin == "gguf" else native_format(self.source)

    @property
    def roofline_format(self) -> str | None:
        """Its weights' format by the roofline's name; None: as the files have them."""
        weights = self.settings.weights
        return None if weights is None else names.roofline_name(weights, self.backend)

    @property
    def artifact_kind(self) -> Kind:
        """The kind of file its engine reads."""
        return BACKENDS[self.backend].artifact

    @property
    def accelerator(self) -> Accelerator | None:
        """The device it will run on; None for the CPU."""
        return accelerator(self.engine, self.settings)

    @property
    def spreads(self) -> bool:
        """Whether its engine puts one model on several memories."""
        return BACKENDS[self.backend].places_layers

    @property
    def accelerators(self) -> tuple[Accelerator, ...]:
        """Every device beside the CPU that may hold a part of the model, or compute on what the host holds."""
        first = self.accelerator
        if first is None:
            return ()
        chosen = self.spreads and self.settings.device in {"auto", "gpu"} and self.settings.split_mode != "none"
        return self.engine.accelerators if chosen else (first,)

    def estimate(self, cases: tuple[Case, ...]) -> estimate.WorkEstimate:
        """How long its parts should take."""
        size = weight_bytes(self.source, self.roofline_format)
        return estimate.estimate(self.source.architecture, size / n_params(self.source), size, cases, self.rates)

    def __str__(self) -> str:
        """As `name_of`."""
        return name_of(self.source.name, self.backend, self.settings.asked())


def name_of(model: str, backend: str, asked: Mapping[str, Any]) -> str:
    """`llama-3.2-1b bf16 on llama.cpp -ngl 16 -ctk q8_0`: what tells a work from every other of its run.

    Args:
        model: its name.
        backend: the engine's.
        asked: of a work's settings, or of a row; those with their usual value go without saying.
    """
    unasked = {"n_threads": physical_cores()}
    flags, usual = flags_of({**unasked, **asked}), flags_of(unasked)
    told = [f" {flag} {value}" for flag, value in flags.items() if flag in _LISTS and value != usual[flag]]
    weights = f" {asked['weights'] or 'as is'}" if "weights" in asked else ""
    return f"{model}{weights} on {backend}{''.join(told)}"


def accelerator(engine: EngineInfo, settings: Settings) -> Accelerator | None:
    """The device that settings lead to on an engine; None for the CPU."""
    if settings.device == "cpu" or not engine.accelerators:
        return None
    named = [device for device in engine.accelerators if device.id == settings.device]
    return (named or list(engine.accelerators))[0]


def combinations(options: Options, sources: list[ModelSource], engines: dict[str, EngineInfo]) -> Iterator[Work]:
    """Every model × engine × settings."""
    host = estimate.host_rates()
    for source, (name, info) in itertools.product(sources, engines.items()):
        if source.engine not in (None, name):
            continue
        for settings in _settings(options, source, name):
            rates = _rates(name, accelerator(info, settings), host)
            yield Work(source, name, settings, info, rates)


def weights_setting(asked: str, source: ModelSource, backend: str) -> str | None:
    """What a word of -w sets for a model in an engine; None: as the .gguf file is, which has that format already."""
    name = names.own_name(asked, backend)
    is_plain_gguf = source.origin == "gguf" and source.path is not None and is_plain(source.path)
    return None if is_plain_gguf and name == native_format(source) else name


def _settings(options: Options, source: ModelSource, backend: str) -> Iterator[Settings]:
    """Every combination; those that differ only in what the engine does not have are one."""
    as_it_is = None if source.origin == "gguf" or source.quantised_by else _DEFAULT_WEIGHTS
    asked = tuple(dict.fromkeys(weights_setting(word, source, backend) for word in options.weights or ()))
    has_batches = BACKENDS[backend].places_layers
    choices: dict[str, tuple[Any, ...]] = {
        "weights": asked or (as_it_is,),
        "n_threads": options.n_threads or (physical_cores(),),
        "n_gpu_layers": options.n_gpu_layers,
        "n_cpu_moe": options.n_cpu_moe,
        "kv_offload": options.kv_offload,
        "split_mode": options.split_mode,
        "tensor_split": options.tensor_split,
        "flash_attn": options.flash_attn,
        "kv_k_format": options.kv_k_format,
        "kv_v_format": options.kv_v_format,
        "cache_kind": options.cache_kind,
        "n_batch": options.n_batch if has_batches else (0,),
        "n_ubatch": options.n_ubatch if has_batches else (0,),
    }
    for chosen in itertools.product(*choices.values()):
        yield Settings(
            device=options.device,
            rpc=options.rpc,
            allow_partial=options.allow_partial,
            prompt=options.prompt.label if options.prompt else "",
            **dict(zip(choices, chosen, strict=True)),
        )


def _rates(backend: str, device: Accelerator | None, host: estimate.Rates) -> estimate.Rates:
    if device is not None:
        return estimate.accelerator_rates(device.name, device.memory_bytes)
    return estimate.MLX_CPU if backend == "mlx" else host
