"""The worker's side: what an engine answers, and how far quantised answers move from unquantised ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from backends.base import BackendError
from harness.probe import PROBE_SEED
from harness.workload import token_stream

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from backends.base import Logits, Session

# Engines keep the latest tokens of a KV cache unquantised (transformers 128), so that a short text would tell nothing.
CONTEXT = 512
_SCORED = 64


@dataclass(frozen=True)
class Quality:
    """Over the scored positions of the probe."""

    kl: float  # mean KL divergence from the unquantised answers' distribution, nats
    top1: float  # share of positions with the same most likely token


def answers(session: Session) -> Logits:
    """What an engine says after each of the probe's last tokens, read from a cache that is filled before them.

    The cache is allocated anew.

    Returns:
        `[positions, vocab]`: 64 positions up to token 512, or half of a smaller context.

    Raises:
        BackendError: they are no numbers, as where sums overflow in f16.
    """
    context = min(CONTEXT, session.max_context or CONTEXT)
    scored = min(_SCORED, context // 2)
    tokens = token_stream(context, 1, session.vocab_size, PROBE_SEED)
    session.allocate(context, 1)
    session.prefill(tokens[:, : context - scored])
    logits: Logits = session.logits(tokens[:, context - scored :])[0]
    if not np.isfinite(logits).all():
        raise BackendError("its answers to the probe are not all finite numbers")
    return logits


def compare(unquantised: Logits, quantised: Logits) -> Quality:
    """Set quantised answers beside unquantised ones.

    Args:
        unquantised: `[positions, vocab]` logits.
        quantised: the same of the same tokens.
    """
    log_p, log_q = _log_softmax(unquantised), _log_softmax(quantised)
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean()
    top1 = (unquantised.argmax(axis=1) == quantised.argmax(axis=1)).mean()
    return Quality(max(float(kl), 0.0), float(top1))


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    scores = logits.astype(np.float64)
    scores -= scores.max(axis=1, keepdims=True)
    log_softmax: NDArray[np.float64] = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return log_softmax
