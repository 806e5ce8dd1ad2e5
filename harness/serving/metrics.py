"""From the replies of one round to the numbers of its row. Pure arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.metrics import DECODE, ITL, itl_quantiles, no_interval
from results.amounts import significant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from harness.serving.reply import Reply

Values = dict[str, float]
Missing = dict[str, str]

_LEAST_TOGETHER = 2  # tokens of each stream while all decode: fewer are an accident, not a rate


def metrics(replies: Sequence[Reply], n_gen: int) -> tuple[Values, Missing]:
    """The measured columns of one round.

    Args:
        replies: of its streams, one each.
        n_gen: tokens of each reply, by the server's count; 0: only the first is of interest.

    Returns:
        column -> value, and column -> why there is none.
    """
    ttft_s = [reply.ttft_s for reply in replies]
    values: Values = {"ttft_client_s": float(np.median(ttft_s))}
    missing: Missing = {}
    if len(replies) > 1:
        values |= dict(zip(("ttft_client_p90_s", "ttft_client_p99_s"), _quantiles(ttft_s, (0.9, 0.99)), strict=True))
    else:
        missing |= dict.fromkeys(("ttft_client_p90_s", "ttft_client_p99_s"), "one stream has one TTFT")
    if n_gen:
        values["output_tok_s"] = _output_rate(replies, n_gen)
    else:
        missing["output_tok_s"] = no_interval(n_gen)
    for rates in (_request_rate, _together, _itl):
        found = rates(replies, n_gen)
        if isinstance(found[1], str):
            missing |= dict.fromkeys(found[0], found[1])
        else:
            values |= found[1]
    return values, missing


def intervals_s(replies: Sequence[Reply], n_gen: int) -> NDArray[np.float64]:
    """Every ITL that the streams show, stream after stream; none where a chunk holds several tokens."""
    if n_gen < 2 or not all(reply.shows_single_tokens(n_gen) for reply in replies):
        return np.array([])
    return np.concatenate([np.diff(reply.arrivals_ns) for reply in replies]) / 1e9


def _output_rate(replies: Sequence[Reply], n_gen: int) -> float:
    """All output tokens over the whole round, prefill and waiting included."""
    first = min(reply.sent_ns for reply in replies)
    last = max(int(reply.arrivals_ns[-1]) for reply in replies)
    return len(replies) * n_gen / ((last - first) / 1e9)


def _request_rate(replies: Sequence[Reply], n_gen: int) -> tuple[tuple[str, ...], Values | str]:
    """The median stream's own rate: tokens after its first chunk, over the time from that to the last."""
    columns = ("request_tok_s",)
    if why := _no_rate(replies, n_gen):
        return columns, why
    rates = [(n_gen - reply.tokens_at(n_gen)[0]) / reply.decode_s for reply in replies]
    return columns, {"request_tok_s": float(np.median(rates))}


def _together(replies: Sequence[Reply], n_gen: int) -> tuple[tuple[str, ...], Values | str]:
    """Tokens a second while all streams decode: from the last one's first token to the first one's last.

    Between two of its chunks a stream's tokens arrive evenly, so that neither end of that time favours any.
    """
    if why := _no_rate(replies, n_gen):
        return DECODE, why
    begin = max(int(reply.arrivals_ns[0]) for reply in replies)
    end = min(int(reply.arrivals_ns[-1]) for reply in replies)
    if end <= begin:
        return DECODE, "the streams never all decode at once: the server serves fewer at a time, or some came late"
    tokens = [np.diff(np.interp([begin, end], reply.arrivals_ns, reply.tokens_at(n_gen)))[0] for reply in replies]
    if len(replies) > 1 and min(tokens) < min(_LEAST_TOGETHER, n_gen - 1):
        at_once = f"{significant((end - begin) / 1e9)} s"
        return DECODE, f"all streams decode at once for {at_once} only, too few tokens for a rate"
    rate = float(sum(tokens)) / ((end - begin) / 1e9)
    return DECODE, {"decode_tok_s": rate, "tpot_s": len(replies) / rate}


def _itl(replies: Sequence[Reply], n_gen: int) -> tuple[tuple[str, ...], Values | str]:
    if why := _no_rate(replies, n_gen):
        return ITL, why
    found = intervals_s(replies, n_gen)
    if not len(found):
        return ITL, "some chunks of the stream hold several tokens, so it shows no interval between two"
    return ITL, itl_quantiles(found)


def _no_rate(replies: Sequence[Reply], n_gen: int) -> str | None:
    if n_gen < 2:
        return no_interval(n_gen)
    if any(len(reply.arrivals_ns) == 1 for reply in replies):
        return "the reply came in one chunk, which shows no rate"
    if any(reply.decode_s <= 0 for reply in replies):
        return "all chunks came at the same moment, which shows no rate"
    return None


def _quantiles(samples: Sequence[float], at: tuple[float, ...]) -> list[float]:
    return [float(value) for value in np.quantile(samples, at)]
