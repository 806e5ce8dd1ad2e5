"""The price of a quantised KV cache: how far the engine's answers move from those with an unquantised one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.probe import PROBE_SEED
from harness.workload import token_stream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from backends.base import Logits, Session
    from harness.work import Work

UNQUANTISED = frozenset({"auto", "f32", "f16", "bf16"})
_QUANTISED_KIND = "quantized"  # of transformers' caches; its format is then its own choice
# Engines keep the latest tokens unquantised (transformers 128 of them), so that a short text would tell nothing.
_CONTEXT = 512
_SCORED = 64


@dataclass(frozen=True)
class Quality:
    """Over the scored positions of the probe."""

    kl: float  # mean KL divergence from the unquantised answers' distribution, nats
    top1: float  # share of positions with the same most likely token


def is_quantised(work: Work) -> bool:
    """Whether a work asks for a KV cache of fewer bits than the weights' types have."""
    settings = work.settings
    return settings.cache_kind == _QUANTISED_KIND or not {settings.kv_k_format, settings.kv_v_format} <= UNQUANTISED


def unquantised(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request for a quantised cache, without what quantises it."""
    options = dict(request["engine_options"])
    if options.get("cache") == _QUANTISED_KIND:
        del options["cache"]
    return {**request, "kv_k_format": "auto", "kv_v_format": "auto", "engine_options": options}


def unmeasured(work: Work) -> str | None:
    """Why a work's quality is not measured; None where it is."""
    if not is_quantised(work):
        return "the KV cache is not quantised"
    if work.source.weights_origin != "trained":
        return "the weights are random: the change would be that of their initialisation"
    return None


def answers(session: Session) -> Logits:
    """What an engine says after each of the probe's last tokens, read from a cache that is filled before them.

    The cache is allocated anew.

    Returns:
        `[positions, vocab]`: 64 positions up to token 512, or half of a smaller context.
    """
    context = min(_CONTEXT, session.max_context or _CONTEXT)
    scored = min(_SCORED, context // 2)
    tokens = token_stream(context, 1, session.vocab_size, PROBE_SEED)
    session.allocate(context, 1)
    session.prefill(tokens[:, : context - scored])
    logits: Logits = session.logits(tokens[:, context - scored :])[0]
    return logits


def compare(unquantised: Logits, quantised: Logits) -> Quality:
    """Set the answers with a quantised cache beside those without.

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
