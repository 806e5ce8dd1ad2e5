"""One worker's job, but for its cases: a model, an engine, and the settings asked of it."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from backends.registry import BACKENDS
from harness import estimate
from harness.machine.hardware import physical_cores
from harness.models.source import n_params, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backends.base import Accelerator, EngineInfo
    from backends.registry import Kind
    from harness.models.source import ModelSource
    from harness.options import Options
    from harness.workload import Case

_DEFAULT_WEIGHTS = "bf16"


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

    def asked(self) -> dict[str, Any]:
        """For the row: what was asked, beside what was got."""
        return asdict(self)


@dataclass(frozen=True)
class Work:
    """A model in an engine with its settings; a worker is started for each, in every launch."""

    source: ModelSource
    backend: str
    settings: Settings
    engine: EngineInfo
    rates: estimate.Rates

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
        """Whether its engine puts one model on several GPUs."""
        return BACKENDS[self.backend].places_layers

    def estimate(self, cases: tuple[Case, ...]) -> estimate.WorkEstimate:
        """How long its parts should take."""
        size = weight_bytes(self.source, self.settings.weights)
        return estimate.estimate(self.source.architecture, size / n_params(self.source), size, cases, self.rates)

    def __str__(self) -> str:
        """`llama-3.2-1b bf16 on torch`."""
        return f"{self.source.name} {self.settings.weights or 'as is'} on {self.backend}"


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
        for settings in _settings(options, source, name):
            rates = _rates(name, accelerator(info, settings), host)
            yield Work(source, name, settings, info, rates)


def _settings(options: Options, source: ModelSource, backend: str) -> Iterator[Settings]:
    """Every combination; those that differ only in what the engine does not have are one."""
    as_it_is = None if source.origin == "gguf" else _DEFAULT_WEIGHTS
    has_batches = BACKENDS[backend].places_layers
    for weights, n_threads, n_gpu_layers, flash_attn, kv_k_format, kv_v_format, n_batch, n_ubatch in itertools.product(
        options.weights or (as_it_is,),
        options.n_threads or (physical_cores(),),
        options.n_gpu_layers,
        options.flash_attn,
        options.kv_k_format,
        options.kv_v_format,
        options.n_batch if has_batches else (0,),
        options.n_ubatch if has_batches else (0,),
    ):
        yield Settings(
            weights=weights,
            device=options.device,
            n_threads=n_threads,
            n_gpu_layers=n_gpu_layers,
            flash_attn=flash_attn,
            kv_k_format=kv_k_format,
            kv_v_format=kv_v_format,
            n_batch=n_batch,
            n_ubatch=n_ubatch,
        )


def _rates(backend: str, device: Accelerator | None, host: estimate.Rates) -> estimate.Rates:
    if device is not None:
        return estimate.accelerator_rates(device.name, device.memory_bytes)
    return estimate.MLX_CPU if backend == "mlx" else host
