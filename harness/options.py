"""What a person can ask of a run: the command line's flags, already parsed, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from backends.base import LoadRequest
from harness.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from harness.prompt.text import PromptText
    from harness.workload import Case, KvCache

ANCHOR_MODEL = "llama-3.2-1b"
ANCHOR_PROMPT, ANCHOR_GEN, ANCHOR_DEPTH = 512, 128, 0

_LISTS: dict[str, type] = {"tuple[int, ...]": int, "tuple[str, ...]": str}
_LEAST = {"batch": 1, "n_gpu_layers": -1, "n_threads": 1, "n_batch": 1, "n_ubatch": 1}  # of the others 0


@dataclass(frozen=True)
class Options:
    """One request. None leaves a choice to the plan; every tuple but `rpc` and `artifacts` is a list to combine.

    Attributes:
        models: presets, Hugging Face directories or .gguf files.
        artifacts: engine and path, each engine's own file of the one model; (): all engines read what `models` says.
        download: fetch what is neither on the disk nor in Hugging Face's cache.
        allow_pickle: read weights that are pickled alone, in which torch looks for nothing but tensors.
        n_prompt, n_gen, n_depth, batch: the grid of cases; None: the anchor's, or what a small context holds.
        kv_cache: how the cases use the KV cache: "on", "off", "prefix" (see `workload.Case`).
        cases: these alone, where they are no grid; None: the grid.
        base_url, api_key: of a server, for the backend "openai".
        rate: requests a second, where a server's requests come by chance; None: all of a repetition at once.
        on: the server's device, as the catalog calls it.
        prompt: the text whose tokens the grid's cases read; None: random ids.
        backends: engines by name; None: every installed engine that is at home on this machine.
        weights: weight formats; None: bf16, or a .gguf file's own.
        device: "auto", "cpu", "gpu" or an engine's own device name.
        n_gpu_layers: layers on the GPU, -1 for all (llama.cpp).
        n_cpu_moe: of so many layers, the first, the experts stay in the host's memory (llama.cpp).
        kv_offload: the KV cache lies beside its layers; False: in the host's memory (llama.cpp).
        split_mode: over several GPUs: "none", "layer" or "row" (llama.cpp).
        tensor_split: each GPU's part, in any unit; (): by their free memory (llama.cpp).
        rpc: endpoints of machines that lend their memory, all of them for every work (llama.cpp).
        allow_partial: measure what the engine placed otherwise than asked, too.
        n_threads: host threads; None: the physical cores.
        flash_attn: "auto", "on", "off".
        kv_k_format, kv_v_format: KV cache formats; "auto": each engine's usual.
        cache_kind: of those that the installed transformers has; "auto": the backend's own (torch).
        n_batch, n_ubatch: llama.cpp's logical and physical batch.
        repetitions, launches: per case and per worker; None: by what loading costs.
        seed: of the token stream.
        output: the CSV to append to; None: named after the machine.
        machine: its label; None: from its hardware.
        resume: run only what the output lacks.
        max_time_s: start nothing more after so long.
        timeout_s: the longest silence of a worker; None: by the plan's estimate.
    """

    models: tuple[str, ...] = (ANCHOR_MODEL,)
    artifacts: tuple[tuple[str, str], ...] = ()
    download: bool = False
    allow_pickle: bool = False
    n_prompt: tuple[int, ...] | None = None
    n_gen: tuple[int, ...] | None = None
    n_depth: tuple[int, ...] = (ANCHOR_DEPTH,)
    batch: tuple[int, ...] = (1,)
    kv_cache: tuple[KvCache, ...] = ("on",)
    cases: tuple[Case, ...] | None = None
    prompt: PromptText | None = None
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    rate: float | None = None
    on: str | None = None
    backends: tuple[str, ...] | None = None
    weights: tuple[str, ...] | None = None
    device: str = "auto"
    n_gpu_layers: tuple[int, ...] = (-1,)
    n_cpu_moe: tuple[int, ...] = (0,)
    kv_offload: tuple[bool, ...] = (True,)
    split_mode: tuple[str, ...] = ("layer",)
    tensor_split: tuple[tuple[float, ...], ...] = ((),)
    rpc: tuple[str, ...] = ()
    allow_partial: bool = False
    n_threads: tuple[int, ...] | None = None
    flash_attn: tuple[str, ...] = ("auto",)
    kv_k_format: tuple[str, ...] = ("auto",)
    kv_v_format: tuple[str, ...] = ("auto",)
    cache_kind: tuple[str, ...] = ("auto",)
    n_batch: tuple[int, ...] = (LoadRequest.n_batch,)
    n_ubatch: tuple[int, ...] = (LoadRequest.n_ubatch,)
    repetitions: int | None = None
    launches: int | None = None
    seed: int = 1
    output: Path | None = None
    machine: str | None = None
    resume: bool = False
    max_time_s: float | None = None
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        """One value may stand for a list of one.

        Raises:
            UserError: a list holds what it cannot, as a program may give it; the command line has told its own by then.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            if "tuple" in str(each.type) and isinstance(value, str | int):
                object.__setattr__(self, each.name, (value,))
            _check(each.name, str(each.type), getattr(self, each.name))


def _check(name: str, kind: str, value: object) -> None:
    wanted = next((wanted for text, wanted in _LISTS.items() if text in kind), None)
    if wanted is None or value is None:
        return
    if not isinstance(value, tuple | list):
        raise UserError(f"{name}: {value!r} is no list")
    for item in value:
        if not isinstance(item, wanted) or (isinstance(item, bool) and wanted is int):
            raise UserError(f"{name}: {item!r} is {'no whole number' if wanted is int else 'no text'}")
        if isinstance(item, int) and item < _LEAST.get(name, 0):
            raise UserError(f"{name}: {item} is too small, the least is {_LEAST.get(name, 0)}")
