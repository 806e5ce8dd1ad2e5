"""The probe: a fixed sequence that every engine scores before it is timed, so that rows can be checked where they meet.

It is scored near the start and far out, because a wrong RoPE scaling or a forgotten window shows only far out.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from harness.workload import token_stream
from results.schema import PROBE_PLACES as PLACES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Session

PROBE_SEED = 0x70_72_6F_62_65  # the probe is the same whatever --seed says
NEAR_TOKENS = 64
FAR_FROM = 2048  # far enough for every published RoPE scaling to matter
FAR_TOKENS = 64
FAR_PIECE = 256
FAR_BUDGET_S = 45.0


@dataclass(frozen=True)
class Probe:
    """What one engine answered.

    Attributes:
        nll: mean negative log-likelihood of tokens 1 to 63, nats; it identifies the weights.
        logits: 16 logits at fixed places among tokens 0 to 63, then 16 far out if those were scored.
        far_missing: why they were not.
    """

    nll: float
    logits: list[float]
    far_missing: str | None


def score(session: Session, *, window: int | None) -> Probe:
    """Score the probe on a session; the KV cache is allocated anew for it.

    Args:
        session: a loaded model.
        window: tokens of the model's attention window, if it has one: far out is past it.
    """
    far_from = max(FAR_FROM, window or 0)
    context = far_from + FAR_TOKENS
    limit = session.max_context
    reaches = limit is None or context <= limit
    tokens = token_stream(context, 1, session.vocab_size, PROBE_SEED)

    session.allocate(context if reaches else NEAR_TOKENS, 1)
    near = session.logits(tokens[:, :NEAR_TOKENS])[0]
    nll = _nll(near, tokens[0, :NEAR_TOKENS])
    logits = _pick(near)
    if not reaches:
        return Probe(nll, logits, f"the model's context of {limit} tokens ends before token {context}")
    if slow := _fill(session, tokens[:, NEAR_TOKENS:far_from]):
        return Probe(nll, logits, slow)
    return Probe(nll, logits + _pick(session.logits(tokens[:, far_from:])[0]), None)


def _fill(session: Session, tokens: NDArray[np.int32]) -> str | None:
    """Prefill in pieces; gives up, and says why, where the whole would take too long on this machine."""
    n_tokens, started = tokens.shape[1], time.perf_counter()
    for done in range(0, n_tokens, FAR_PIECE):
        session.prefill(tokens[:, done : done + FAR_PIECE])
        finished = min(done + FAR_PIECE, n_tokens)
        expected = (time.perf_counter() - started) / finished * n_tokens
        if expected > FAR_BUDGET_S and finished < n_tokens:
            return f"{n_tokens} tokens of prefill would take about {expected:.0f} s here"
    return None


def _nll(logits: NDArray[np.float32], tokens: NDArray[np.int32]) -> float:
    """Mean of -log p(token i+1 | tokens to i), in float64."""
    scores = logits[:-1].astype(np.float64)
    top = scores.max(axis=1)
    log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
    return float(np.mean(log_sum - scores[np.arange(len(scores)), tokens[1:]]))


def _pick(logits: NDArray[np.float32]) -> list[float]:
    """Logits at fixed (position, id) places, six digits: enough to tell engines apart, short enough for a cell."""
    n_tokens, vocab_size = logits.shape
    values = []
    for place in range(PLACES):
        position = (place + 1) * n_tokens // PLACES - 1
        digest = hashlib.sha256(f"probe place {place}".encode()).digest()
        values.append(float(f"{logits[position, int.from_bytes(digest[:8], 'big') % vocab_size]:.6g}"))
    return values
