"""The contract between the harness and an engine.

A backend loads a model and moves tokens through it. It measures nothing: the worker takes every timestamp, around
these calls, with one clock. So the contract is about *when a call may return*: `prefill` and each item of `decode`
may return only when the ids can be read on the host, with nothing of that step still pending on the device.

A backend module defines two functions, and imports its engine only inside them (or in what they call):

    describe() -> EngineInfo            # what is installed and which accelerators it can really use
    load(request) -> Session            # raises BackendError when it cannot

Shapes are written `[batch, n]`. Token ids are int32, logits float32, both numpy arrays on the host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int32]
    Logits = NDArray[np.float32]


class BackendError(Exception):
    """The engine cannot do what was asked. The message is one line that a person can act on."""


class OutOfMemoryError(BackendError):
    """The engine ran out of device or host memory. The message says which, and how much was asked if known."""


class Repeated(NamedTuple):
    """A synthetic tensor: its elements, in C order, are those of a pool, over and over."""

    pool: NDArray[np.uint16]  # the bits of bfloat16
    start: int  # place in the pool of the first one
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Accelerator:
    """One device, beside the CPU, that the installed engine can really use."""

    id: str  # the engine's own name: "cuda:0", "mps", "CUDA0", "Metal"
    name: str  # the product's name: "NVIDIA GeForce RTX 5090"
    memory_bytes: int | None = None  # total; None where the engine does not tell


@dataclass(frozen=True)
class EngineInfo:
    """What is installed, before any model is loaded."""

    version: str  # of the library that does the work: torch's, mlx's, llama-cpp-python's
    build: str  # what else identifies the build: "cu130, transformers 5.24.0", "llama.cpp AVX512 …"
    accelerators: tuple[Accelerator, ...] = ()
    # Hugging Face's `model_type`s that it has code for; None: it is not the one to tell.
    model_types: tuple[str, ...] | None = None
    cache_kinds: tuple[str, ...] = ()  # of KV caches, beside its usual one: engine option "cache"
    cuda_cache_kinds: tuple[str, ...] = ()  # those of them that run on CUDA devices only
    kv_formats: tuple[str, ...] = ()  # of keys and values, beside those that every version of it has
    quantised_formats: tuple[str, ...] = ()  # of weights, that its `quantise` module or its `load` makes


@dataclass(frozen=True)
class LoadRequest:
    """Everything that a worker asks of an engine when it loads a model."""

    artifact: Path  # a Hugging Face directory, or a .gguf file for llama.cpp
    weight_format: str | None  # "f32", "f16", "bf16", or what the artifact is quantised in; None: as the artifact is
    device: str = "auto"  # "auto", "cpu", "gpu", or an accelerator's id
    n_gpu_layers: int = -1  # -1: all; only llama.cpp places less than the whole model
    n_threads: int = 1
    flash_attn: str = "auto"  # "auto", "on", "off"
    kv_k_format: str = "auto"  # "auto": the engine's usual (llama.cpp f16, others the weights' format)
    kv_v_format: str = "auto"
    n_batch: int = 2048  # llama.cpp: most tokens one llama_decode call is given
    n_ubatch: int = 512  # llama.cpp: most tokens computed at once
    n_cpu_moe: int = 0  # llama.cpp: the experts of the first so many layers stay in the host's memory
    kv_offload: bool = True  # llama.cpp: the KV cache lies where its layer does; False: in the host's memory
    split_mode: str = "layer"  # llama.cpp, over several GPUs: "none", "layer", "row"
    tensor_split: tuple[float, ...] = ()  # llama.cpp: each GPU's part, in any unit; (): by their free memory
    rpc: tuple[str, ...] = ()  # llama.cpp: "HOST:PORT" of servers that lend their memory and processor
    engine_options: dict[str, Any] = field(default_factory=dict)  # what only one engine knows


@dataclass(frozen=True)
class Tier:
    """What one memory holds, by the sizes of the engine's buffers there, whatever its log says of layers."""

    memory: str  # "cpu", or the accelerator's id
    name: str | None  # the product's name; None for the host
    layers: tuple[int, ...]  # that the engine says it computes there; the number of layers stands for the output layer
    weight_bytes: int  # of the model's buffers; a file that is mapped may count more than the tensors used
    kv_bytes: int  # of the KV cache's buffers; 0 before allocate


@dataclass(frozen=True)
class Held:
    """What a module of a model holds in memory."""

    name: str  # of its parameters in a Hugging Face checkpoint: "model.layers.0.mlp.up_proj.weight"
    n_params: int  # packed ones by their number
    n_bytes: int  # with scales and zero points


@dataclass(frozen=True)
class Facts:
    """What really happened, as opposed to what was asked. None means unknown: `unavailable` says why."""

    backend_version: str
    engine_build: str
    engine_mode: str  # the kernel mode: "eager", "compiled", "cuda-graph", "async-eval", "llama_decode"
    device: str  # "cpu", "cuda:0", "mps", "Metal", …
    device_name: str | None  # the product's name; None on a CPU (the harness knows it better)
    device_memory_bytes: int | None  # total memory of that device; None on a CPU
    n_threads: int | None  # threads the engine computes with on the host; None where it takes none
    gpu_layers_effective: int  # repeating layers and the output layer, counted as llama.cpp counts, off the CPU
    flash_attn: str | None  # "on", "off", or the engine's own kernel name ("sdpa")
    n_params: int  # counted from the loaded tensors, a tied tensor once
    weight_format: str  # as loaded
    weight_bytes: int  # of the loaded tensors, a tied tensor once
    kv_k_format: str
    kv_v_format: str
    kv_allocated_tokens: int  # tokens that the KV cache holds room for, a sequence; 0 before allocate
    engine_settings: dict[str, Any]  # everything else that can move a number; JSON-serialisable, no paths
    tiers: tuple[Tier, ...] = ()  # in the order of a step; (): the whole model is on `device`
    unavailable: dict[str, str] = field(default_factory=dict)  # field -> why it is None


@dataclass(frozen=True)
class Memory:
    """Memory since the last `allocate`. None means that the engine cannot tell: `unavailable` says why."""

    peak_device_bytes: int | None  # the engine's own peak counter on the accelerator; None on a CPU
    kv_cache_bytes: int | None  # bytes the KV cache has allocated, all sequences
    unavailable: dict[str, str] = field(default_factory=dict)


class Session(ABC):
    """One loaded model with one KV cache.

    Calls come in this order: `allocate`, then any mix of `reset`, `prefill`, `decode` and `logits` (without a KV
    cache: of `recompute`), then perhaps another `allocate`; `close` ends it. Every call but `recompute` continues
    after the tokens already in the cache.
    """

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Rows of the LM head."""

    @property
    @abstractmethod
    def max_context(self) -> int | None:
        """Tokens the model was made for; None where it states no limit."""

    @abstractmethod
    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:
        """Drop the KV cache and make one for `batch` sequences of `context_tokens` each, empty.

        No larger than that, but for the engine's own rounding. Peak memory counters start anew here. Without
        `kv_cache` only `recompute` is called; an engine that can do without the cache then makes none.

        Raises:
            OutOfMemoryError: the cache does not fit.
            BackendError: the engine cannot hold this many tokens or sequences.
        """

    @abstractmethod
    def reset(self, keep_tokens: int = 0) -> int:
        """Forget what follows the first `keep_tokens` tokens of each sequence.

        Returns:
            How many tokens were kept: `keep_tokens`, or fewer where the engine cannot cut there (then 0).
        """

    @abstractmethod
    def prefill(self, tokens: Ids) -> Ids:
        """One forward pass over a prompt, with the LM head and the argmax for the last position only.

        Args:
            tokens: `[batch, n]`, n >= 1.

        Returns:
            `[batch]`: the argmax after the last token of each sequence, readable on the host.
        """

    @abstractmethod
    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """One forward pass a token, with forced inputs: step i reads `tokens[:, i]`.

        Each step computes its argmax and brings it to the host, so the cost is that of greedy decoding. A backend
        may queue step i+1 before it hands out step i, as its own generation loop would.

        Args:
            tokens: `[batch, steps]`, steps >= 1.

        Yields:
            `[batch]`, `steps` times: the argmax after each step, as soon as it is readable on the host. The array
            may be reused by the next step.
        """

    def recompute(self, tokens: Ids, first: int) -> Iterator[Ids]:
        """Decode without a KV cache: every step runs its whole prefix through all layers again.

        Here by clearing the cache and a prefill for each step; an engine that can do without the cache does.

        Args:
            tokens: `[batch, n]`, the forced text; nothing of it is in any cache.
            first: tokens of the first prefix, 1 to n; each step's is one token longer.

        Yields:
            `[batch]`, `n - first + 1` times: the argmax after the last token of each prefix, as `decode` yields it.
        """
        for end in range(first, tokens.shape[1] + 1):
            self.reset()
            yield self.prefill(tokens[:, :end])

    @abstractmethod
    def logits(self, tokens: Ids) -> Logits:
        """Like `prefill`, with the logits of every position; for verification, never timed.

        Args:
            tokens: `[batch, n]`.

        Returns:
            `[batch, n, vocab]` float32.
        """

    def experts_hit(self, tokens: Ids, first: int) -> NDArray[np.int64] | None:  # noqa: ARG002
        """Count the experts of a mixture that decode steps read; never timed, and only `allocate` may follow.

        The KV cache is allocated anew for `tokens`. `first` of each sequence are the prompt, and each token after them
        is a step of all sequences. Experts that every token reads (shared ones) do not count.

        Args:
            tokens: `[batch, n]`.
            first: tokens of the prompt, 0 to n - 1.

        Returns:
            `[n - first, layers]`: for each step and each layer with experts the distinct ones that it reads. None: the
            engine cannot tell, or the model has none.
        """
        return None

    @abstractmethod
    def facts(self) -> Facts:
        """What was really loaded and where; valid after `load`, KV fields after `allocate`."""

    def held(self) -> tuple[Held, ...] | None:
        """The weights in memory, module by module, a tied tensor once; they sum up to what `facts` says.

        None: as the artifact has them, in the format that was asked for.
        """
        return None

    @abstractmethod
    def memory(self) -> Memory:
        """Memory since the last `allocate`."""

    @abstractmethod
    def close(self) -> None:
        """Free the model. The session is dead afterwards."""
