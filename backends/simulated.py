"""An engine of known TTFT and ITL: it proves the harness's arithmetic and its handling of failures.

It measures no machine: it reads no artifact, holds no weights, and spends its time in a busy wait. Its
answers depend on every token before them, so a harness that feeds the wrong tokens gets the wrong ids.

Step k of a decode is ready at a fixed time, k times the ITL after the first step was asked for, as on a
device whose queue never runs empty. Work that the host does between two tokens is hidden behind the step in
flight, as it is with a real engine, so what the harness measures must be the ITL itself.

The fields of `Options` come from `engine_options`, and before them from the environment variable
TOKENROOF_SIMULATED as a JSON object, which reaches a worker that somebody else starts.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from backends.base import BackendError, EngineInfo, Facts, Memory, OutOfMemoryError, Session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from backends.base import Held, Ids, LoadRequest, Logits

_VERSION = "1"
_VOCAB = 512
_ENTRIES: NDArray[np.uint64] = np.arange(_VOCAB).astype(np.uint64)
_BYTES = {"f32": 4, "f16": 2, "bf16": 2}


@dataclass(frozen=True)
class Options:
    """What the engine takes, and when it fails."""

    load_s: float = 0.0
    ttft_s: float = 0.02  # of every prefill, whatever its length
    itl_s: float = 0.002
    fault: Literal["crash", "hang", "oom", "error"] | None = None
    fault_at: Literal["load", "held", "prefill", "decode"] = "decode"  # decode: half-way
    fault_context: int | None = None  # fail only while this many tokens are allocated; None: always
    use_extra_bufts: bool = True  # False: a "crash" does not happen, like llama.cpp's with this option


def describe() -> EngineInfo:
    """The simulation's own version; it uses no accelerator."""
    return EngineInfo(version=_VERSION, build="no engine")


def load(request: LoadRequest) -> SimulatedSession:
    """A session of the asked times.

    Raises:
        BackendError: an unknown option, or a device, attention or KV format that it does not simulate.
    """
    asked = (request.flash_attn, request.kv_k_format, request.kv_v_format)
    if request.device not in {"auto", "cpu"} or asked != ("auto", "auto", "auto"):
        raise BackendError("the simulated backend has only a CPU, one attention and one KV format")
    try:
        options = Options(**(json.loads(os.environ.get("TOKENROOF_SIMULATED", "{}")) | request.engine_options))
    except (TypeError, ValueError) as error:
        raise BackendError(f"the simulated backend does not know an engine option: {error}") from None
    deadline = time.perf_counter() + options.load_s
    session = SimulatedSession(request, options)
    session.fail_if_asked("load")
    _wait_until(deadline)
    return session


class SimulatedSession(Session):
    """A hash of the tokens so far stands for the KV cache, one state a token and sequence."""

    def __init__(self, request: LoadRequest, options: Options) -> None:
        self._request = request
        self._options = options
        self._states: NDArray[np.uint64] = np.zeros((0, 0), np.uint64)  # [batch, context]
        self._used = 0

    @property
    def vocab_size(self) -> int:
        """As many as the hash is stretched to."""
        return _VOCAB

    @property
    def max_context(self) -> int | None:
        """None: a hash goes on for ever."""
        return None

    def allocate(self, context_tokens: int, batch: int, *, kv_cache: bool = True) -> None:  # noqa: ARG002
        """Room for one state a token and sequence, which a step that recomputes them fills as well."""
        self._states = np.zeros((batch, context_tokens), np.uint64)
        self._used = 0

    def reset(self, keep_tokens: int = 0) -> int:
        """Cuts anywhere: a state depends on those before it only."""
        self._used = min(keep_tokens, self._used)
        return self._used

    def prefill(self, tokens: Ids) -> Ids:
        """Ready `ttft_s` after the call."""
        deadline = time.perf_counter() + self._options.ttft_s
        self.fail_if_asked("prefill")
        ids = _argmax(self._append(tokens)[:, -1])
        _wait_until(deadline)
        return ids

    def decode(self, tokens: Ids) -> Iterator[Ids]:
        """Step k is ready `k * itl_s` after the first was asked for."""
        steps = tokens.shape[1]
        start = time.perf_counter()
        for step in range(steps):
            if step == steps // 2:
                self.fail_if_asked("decode")
            ids = _argmax(self._append(tokens[:, step : step + 1])[:, -1])
            _wait_until(start + (step + 1) * self._options.itl_s)
            yield ids

    def logits(self, tokens: Ids) -> Logits:
        """As fast as they are computed."""
        return _logits(self._append(tokens))

    def facts(self) -> Facts:
        """One pretended parameter a vocabulary entry."""
        weight_format = self._request.weight_format or "f32"
        return Facts(
            backend_version=_VERSION,
            engine_build="no engine",
            engine_mode="simulated",
            device="cpu",
            device_name=None,
            device_memory_bytes=None,
            n_threads=1,
            gpu_layers_effective=0,
            flash_attn="none",
            n_params=_VOCAB,
            weight_format=weight_format,
            weight_bytes=_VOCAB * _BYTES[weight_format],
            kv_k_format="u64",
            kv_v_format="u64",
            kv_allocated_tokens=self._states.shape[1],
            engine_settings=asdict(self._options),
        )

    def held(self) -> tuple[Held, ...] | None:
        """None: it holds no weights."""
        self.fail_if_asked("held")
        return None

    def memory(self) -> Memory:
        """The states' bytes."""
        return Memory(
            peak_device_bytes=None,
            kv_cache_bytes=self._states.nbytes,
            unavailable={"peak_device_bytes": "the simulated backend uses no accelerator"},
        )

    def close(self) -> None:
        """Drop the states."""
        self.allocate(0, 0)

    def fail_if_asked(self, where: str) -> None:
        """Fail in the way that the options ask for, if this is the place and the allocated context."""
        options = self._options
        if where != options.fault_at or options.fault_context not in {None, self._states.shape[1]}:
            return
        if options.fault == "crash" and options.use_extra_bufts:
            os.abort()
        while options.fault == "hang":
            time.sleep(1)
        if options.fault == "oom":
            raise OutOfMemoryError("out of simulated memory")
        if options.fault == "error":
            raise BackendError("a simulated error")

    def _append(self, tokens: Ids) -> NDArray[np.uint64]:
        """Hash `[batch, n]` tokens onto the states before them, and return the new states, `[batch, n]`."""
        start, end = self._used, self._used + tokens.shape[1]
        if end > self._states.shape[1]:
            raise BackendError(f"{end} tokens do not fit into the {self._states.shape[1]} allocated")
        for position, token in enumerate(tokens.T.astype(np.uint64), start):
            before = self._states[:, position - 1] if position else np.zeros_like(token)
            self._states[:, position] = _mix(before + token + np.uint64(1))
        self._used = end
        return self._states[:, start:end]


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser: every input bit reaches every output bit (Steele, Lea and Flood, 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _logits(states: NDArray[np.uint64]) -> Logits:
    """One draw from [0, 1) a vocabulary entry, seeded by the state: `[…]` -> `[…, vocab]`."""
    draws = _mix(states[..., None] + _ENTRIES)
    return ((draws >> np.uint64(40)) / np.float32(2**24)).astype(np.float32)


def _argmax(states: NDArray[np.uint64]) -> Ids:
    ids: Ids = _logits(states).argmax(axis=-1).astype(np.int32)
    return ids


def _wait_until(deadline: float) -> None:
    """Spin: a sleep wakes up too late by more than the times simulated here may be off."""
    while time.perf_counter() < deadline:
        pass
