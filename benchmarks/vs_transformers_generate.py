"""Our decode loop on this CPU against transformers' own `generate` with its static cache: the aim is >= 1.0.

    python benchmarks/vs_transformers_generate.py [--shapes small 1b] [--threads 2]

Same weights (random, bf16), same prompt, same lengths, same threads, a cache of the same size; the two take turns.
A rate here is one over the median of all intervals between two tokens, so that what else the machine does drops out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parent.parent))

from backends.base import LoadRequest
from backends.torch.session import TorchSession

if TYPE_CHECKING:
    from backends.base import Ids, Session

SHAPES = {
    "small": {
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
    "1b": {  # Llama 3.2 1B
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": True,
    },
}


def build(shape: dict[str, Any], device: torch.device) -> Any:
    """A llama of random bf16 weights, made where it will run."""
    config = transformers.LlamaConfig(**shape, bos_token_id=None, eos_token_id=None)
    with device:
        return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)  # type: ignore[no-untyped-call]


def tokens_per_second(times: list[float]) -> float:
    """The rate of the intervals between the times at which tokens were readable."""
    return (len(times) - 1) / (times[-1] - times[0])


def session_times(session: Session, prompt: Ids, gen: int) -> list[float]:
    """When the call began, then when each of `gen` tokens after `prompt` `[1, n]` was readable on the host."""
    times = [time.perf_counter()]
    session.prefill(prompt)
    times.append(time.perf_counter())
    forced = np.resize(prompt, (1, gen - 1)).astype(np.int32)
    times.extend(time.perf_counter() for _ in session.decode(forced))
    return times


class _Clock(transformers.StoppingCriteria):
    """Notes when each token is there. The device is waited for at the first and the last, so both are true."""

    def __init__(self, gen: int, device: torch.device) -> None:
        self._gen = gen
        self._device = device
        self.times = [time.perf_counter()]

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:  # noqa: ARG002  (its signature)
        if self._device.type != "cpu" and len(self.times) in {1, self._gen}:
            torch.accelerator.synchronize()
        self.times.append(time.perf_counter())
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def generate_times(model: Any, prompt: Ids, gen: int) -> list[float]:
    """The same for `generate`, with transformers' own SDPA attention and static cache; compiled where it does so."""
    attention = model.config._attn_implementation  # noqa: SLF001  (no public name)
    model.set_attn_implementation("sdpa")
    clock = _Clock(gen, model.device)
    ids = torch.from_numpy(prompt.astype(np.int64)).to(model.device)
    model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=gen,
        do_sample=False,
        cache_implementation="static",
        stopping_criteria=transformers.StoppingCriteriaList([clock]),
    )
    model.set_attn_implementation(attention)
    return clock.times


def _ratio(name: str, arguments: argparse.Namespace) -> float:
    torch.manual_seed(0)
    model = build(SHAPES[name], torch.device("cpu"))
    session = TorchSession(model, LoadRequest(Path(), "bf16", n_threads=arguments.threads))
    prompt = np.random.default_rng(0).integers(32000, size=(1, arguments.prompt)).astype(np.int32)
    session.allocate(arguments.prompt + arguments.gen, batch=1)
    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(arguments.rounds + 1):
        session.reset()
        mine = session_times(session, prompt, arguments.gen)[1:]
        other = generate_times(model, prompt, arguments.gen)[1:]
        if turn > 0:  # the first warms up
            ours.extend(np.diff(mine))
            theirs.extend(np.diff(other))
    our, their = 1 / statistics.median(ours), 1 / statistics.median(theirs)
    print(
        f"{name}, {arguments.prompt} + {arguments.gen} tokens: "
        f"{our:.2f} against {their:.2f} tok/s, ratio {our / their:.3f}"
    )
    return our / their


def main() -> int:
    """Exit code 1 where `generate` is faster."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--gen", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    ratios = [_ratio(name, arguments) for name in arguments.shapes]
    return 0 if min(ratios) >= 1.0 else 1


if __name__ == "__main__":
    sys.exit(main())
