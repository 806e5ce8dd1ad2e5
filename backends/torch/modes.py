"""How a token is decoded (`engine_mode`).

- "eager": one ordinary forward pass a step over a view of the cache that ends at the context. The default everywhere
  but on CUDA, and but for weights that would be expanded to bf16 in every such step (torchao's int8).
- "compiled": the step of `steps`, through torch.compile. On a CPU it gains 4 % with a model of a billion
  parameters, whose step is the reading of its weights, and 18 % with one of 30 million; but it needs a C++ compiler,
  and half a minute for every shape, so it runs only when asked for.
- "cuda-graph": the same step, compiled where that works, captured in a CUDA graph and replayed. The default on CUDA.

On CUDA and XPU the next step is enqueued before the last one's ids are waited for. Prefill is eager in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from backends.base import BackendError
from backends.torch.devices import ASYNCHRONOUS
from backends.torch.errors import reason
from backends.torch.steps import inductor_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.torch.steps import StaticStep
    from backends.torch.weights import Weights

MODES = ("eager", "compiled", "cuda-graph")


@dataclass(frozen=True)
class Mode:
    """What became of the mode that was asked for.

    Attributes:
        name: For `engine_mode`.
        step: The step of fixed shapes that it runs; None: ordinary forward passes.
        settings: What was tried, with which outcome.
    """

    name: str
    step: StaticStep | None
    settings: dict[str, Any]


def asked(options: dict[str, Any], device: torch.device, cache_kind: str | None) -> str:
    """The mode that engine options ask for: "auto" or one of `MODES`; taken out of them.

    Args:
        options: All that is left of them; others than "torch_mode" are unknown.
        device: The model's.
        cache_kind: Of transformers' caches, which run in eager steps only; None: the backend's own.

    Raises:
        BackendError: an unknown option or mode, or one that cannot be here.
    """
    mode = options.pop("torch_mode", "auto")
    if options:
        raise BackendError(f"the torch backend does not know the engine option {next(iter(options))!r}")
    if mode not in {"auto", *MODES}:
        raise BackendError(f"torch_mode is 'auto', 'eager', 'compiled' or 'cuda-graph', not {mode!r}")
    if mode == "cuda-graph" and device.type != "cuda":
        raise BackendError(f"torch_mode 'cuda-graph' needs a CUDA device; this one is {device}")
    if cache_kind is None:
        return str(mode)
    if mode not in {"auto", "eager"}:
        raise BackendError(f"torch_mode {mode!r} needs the backend's own cache, not transformers' {cache_kind} one")
    return "eager"


def has_fixed_shapes(mode: str, device: torch.device, weights: Weights) -> bool:
    """Whether a mode, "auto" too, may run a step of fixed shapes."""
    return mode != "eager" and (mode != "auto" or device.type == "cuda" or weights.eager_expands)


def begin(mode: str, device: torch.device, weights: Weights, new_step: Callable[[], StaticStep]) -> Mode:
    """Make the step that a mode decodes with; "auto" takes the best that works.

    Args:
        mode: From `asked`.
        device: The model's.
        weights: The model's.
        new_step: Makes a step of fixed shapes over the cache that is allocated.

    Raises:
        BackendError: the mode does not work here; never for "auto", whose settings say why not.
    """
    if not has_fixed_shapes(mode, device, weights):
        return Mode("eager", None, {})
    step = new_step()
    settings: dict[str, Any] = {}
    settings["torch.compile"] = _try(lambda: step.compile(weights.n_bytes)) or inductor_options(weights.n_bytes)
    compiled, captured = isinstance(settings["torch.compile"], dict), False
    if device.type == "cuda" and mode != "compiled":
        settings["cuda graph capture"] = _try(step.capture) or True
        captured = settings["cuda graph capture"] is True
    if device.type in ASYNCHRONOUS:  # what compiling and tuning took is not the run's
        torch.accelerator.reset_peak_memory_stats(device)
    if captured:
        return Mode(f"cuda-graph, {'compiled' if compiled else 'not compiled'}", step, settings)
    if compiled and mode != "cuda-graph":
        return Mode("compiled", step, settings)
    if mode == "auto":
        return Mode("eager", None, settings)
    raise BackendError(f"torch cannot run {mode!r} here: {settings}")


def _try(action: Callable[[], None]) -> str | None:
    """Do it, or say why it failed; running out of memory is no reason to go on."""
    try:
        with torch.inference_mode():
            action()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # noqa: BLE001  (compilers raise anything; the reason is kept)
        return f"failed: {reason(error)}"
    return None
