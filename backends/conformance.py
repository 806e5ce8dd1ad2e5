"""One suite that any backend must pass: the clauses of `backends.base`, each checked on a real session.

It needs numpy and nothing else, so that it also runs on a machine where only an engine is installed. Give it
a model with a small vocabulary: every position's logits are brought to the host.

Numbers are compared with one `tolerance`. Two sets of logits agree when, at every position, the L2 norm of
their difference is at most `tolerance` times the norm of the expected ones. An id is an argmax when its logit
lies at most `tolerance` times the largest magnitude at that position below the maximum, because two kernels
of one engine may break a tie differently.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

import numpy as np

from backends.base import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from backends.base import Ids, Logits, Session

    Check = Callable[[Session, float], None]

_SHORT = 24
# Long enough to pass a cache's growth or padding step, which is 256 tokens in the engines known here.
_LONG = 300


@dataclass(frozen=True)
class CheckResult:
    """One clause of the contract: its name, whether it held, and what was seen if it did not."""

    name: str
    ok: bool
    detail: str = ""


class _BrokenClauseError(Exception):
    """A clause did not hold; the message says what was seen."""


def assert_conforms(make_session: Callable[[], Session], tolerance: float) -> None:
    """Run the suite.

    Raises:
        AssertionError: names every clause that failed, one a line.
    """
    failed = [result for result in run(make_session, tolerance=tolerance) if not result.ok]
    if failed:
        raise AssertionError("\n".join(f"{result.name}: {result.detail}" for result in failed))


def run(make_session: Callable[[], Session], *, tolerance: float) -> list[CheckResult]:
    """Check every clause on one session, which each check allocates anew and the last one closes.

    Args:
        make_session: Loads the model and returns a session that nobody has used.
        tolerance: Largest relative difference that is rounding: about 1e-4 in float32, 0.05 in bfloat16.
    """
    session = make_session()
    return [_result(check, session, tolerance) for check in checks()]


def checks() -> tuple[Check, ...]:
    """Every check, in the order in which they run: the first needs a fresh session, the last closes it."""
    return (
        facts_before_allocation,
        logits_are_float32_and_finite,
        prefill_returns_the_last_argmax,
        decode_returns_each_argmax,
        pieces_equal_the_whole,
        decode_continues_where_it_ended,
        recompute_answers_as_cached_decode,
        reset_keeps_a_prefix,
        a_kept_prefix_serves_another_text,
        reset_keeps_no_more_than_there_is,
        reset_forgets_everything,
        sequences_of_a_batch_do_not_mix,
        allocate_starts_empty,
        allocation_holds_what_was_asked,
        overflow_is_an_error,
        facts_are_sane,
        memory_is_sane,
        experts_are_counted_or_not_told,
        closing_raises_nothing,
    )


def _result(check: Check, session: Session, tolerance: float) -> CheckResult:
    try:
        check(session, tolerance)
    except _BrokenClauseError as broken:
        return CheckResult(check.__name__, ok=False, detail=str(broken))
    except Exception as error:  # noqa: BLE001  (whatever an engine raises is the finding, not the suite's end)
        return CheckResult(check.__name__, ok=False, detail=f"{type(error).__name__}: {error}")
    return CheckResult(check.__name__, ok=True)


def facts_before_allocation(session: Session, _: float) -> None:
    """Facts are valid after load, with no room in the KV cache yet."""
    _check_facts(session)
    _require(session.vocab_size > 0, f"vocab_size is {session.vocab_size}")
    allocated = session.facts().kv_allocated_tokens
    _require(allocated == 0, f"kv_allocated_tokens is {allocated} before allocate")


def logits_are_float32_and_finite(session: Session, _: float) -> None:
    """`logits` returns `[batch, n, vocab]` float32 on the host."""
    tokens = _tokens(session, batch=2, n=5)
    session.allocate(_SHORT, batch=2)
    logits = session.logits(tokens)
    _require_array(logits, (2, 5, session.vocab_size), np.float32)
    _require(bool(np.isfinite(logits).all()), "logits are not finite")


def prefill_returns_the_last_argmax(session: Session, tolerance: float) -> None:
    """`prefill` returns `[batch]` int32, the argmax after the last token; also for a prompt of one token."""
    for n in (1, 9):
        tokens = _tokens(session, batch=2, n=n)
        session.allocate(_SHORT, batch=2)
        expected = session.logits(tokens)[:, -1]
        session.reset()
        _require_argmax(session.prefill(tokens), expected, tolerance)


def decode_returns_each_argmax(session: Session, tolerance: float) -> None:
    """`decode` yields one `[batch]` int32 a step, the argmax after its forced input."""
    tokens = _tokens(session, batch=2, n=14)
    session.allocate(_SHORT, batch=2)
    expected = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :6])
    answers = _decode(session, tokens[:, 6:])
    _require(len(answers) == 8, f"8 steps yielded {len(answers)} times")
    for step, ids in enumerate(answers):
        _require_argmax(ids, expected[:, 6 + step], tolerance)


def pieces_equal_the_whole(session: Session, tolerance: float) -> None:
    """However a sequence is cut into calls, its logits are the same, also past a cache's growth step."""
    n = min(_LONG, session.max_context or _LONG)
    tokens = _tokens(session, batch=1, n=n)
    session.allocate(n, batch=1)
    whole = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :1])
    session.prefill(tokens[:, 1 : n // 2])
    middle = session.logits(tokens[:, n // 2 : n - 50])
    _decode(session, tokens[:, n - 50 : n - 5])
    end = session.logits(tokens[:, n - 5 :])
    _require_close(middle, whole[:, n // 2 : n - 50], tolerance)
    _require_close(end, whole[:, n - 5 :], tolerance)


def decode_continues_where_it_ended(session: Session, tolerance: float) -> None:
    """Two calls of `decode`, the first of a single step, leave the cache as one would."""
    tokens = _tokens(session, batch=1, n=16)
    session.allocate(_SHORT, batch=1)
    whole = session.logits(tokens)
    session.reset()
    session.prefill(tokens[:, :4])
    answers = _decode(session, tokens[:, 4:5]) + _decode(session, tokens[:, 5:12])
    _require(len(answers) == 8, f"1 + 7 steps yielded {len(answers)} times")
    _require_argmax(answers[-1], whole[:, 11], tolerance)
    _require_close(session.logits(tokens[:, 12:]), whole[:, 12:], tolerance)


def recompute_answers_as_cached_decode(session: Session, tolerance: float) -> None:
    """Without a KV cache each prefix, from any first one, yields `[batch]` int32: the argmax after its last token."""
    tokens = _tokens(session, batch=2, n=14)
    session.allocate(_SHORT, batch=2)
    expected = session.logits(tokens)
    session.allocate(_SHORT, batch=2, kv_cache=False)
    for first in (6, 1):
        answers = _collected(session.recompute(tokens, first), batch=2)
        _require(len(answers) == 15 - first, f"prefixes of {first} to 14 tokens yielded {len(answers)} times")
        for length, ids in enumerate(answers, first):
            _require_argmax(ids, expected[:, length - 1], tolerance)


def reset_keeps_a_prefix(session: Session, tolerance: float) -> None:
    """After `reset(keep)` the same tokens give the same logits, from as many tokens as it says it kept."""
    tokens = _tokens(session, batch=2, n=20)
    session.allocate(_SHORT, batch=2)
    whole = session.logits(tokens)
    kept = session.reset(8)
    _require(kept in {0, 8}, f"reset(8) kept {kept} tokens: neither 8 nor 0")
    _require_close(session.logits(tokens[:, kept:]), whole[:, kept:], tolerance)


def a_kept_prefix_serves_another_text(session: Session, tolerance: float) -> None:
    """With another token after a kept prefix the logits are those of a fresh start: the old text is gone."""
    tokens = _tokens(session, batch=2, n=20)
    changed = tokens.copy()
    changed[:, 8] = (changed[:, 8] + 1) % session.vocab_size
    session.allocate(_SHORT, batch=2)
    fresh = session.logits(changed)
    session.reset()
    session.prefill(tokens[:, :16])
    _decode(session, tokens[:, 16:])
    kept = session.reset(8)
    _require_close(session.logits(changed[:, kept:]), fresh[:, kept:], tolerance)


def reset_keeps_no_more_than_there_is(session: Session, tolerance: float) -> None:
    """Asked to keep more tokens than the cache holds, `reset` says how many there are, and they stay."""
    tokens = _tokens(session, batch=1, n=20)
    session.allocate(_SHORT, batch=1)
    whole = session.logits(tokens)
    session.allocate(_SHORT, batch=1)
    kept = session.reset(8)
    _require(kept == 0, f"reset(8) of an empty cache kept {kept} tokens")
    session.prefill(tokens[:, :5])
    kept = session.reset(8)
    _require(kept in {0, 5}, f"reset(8) of 5 tokens kept {kept}: neither 5 nor 0")
    _require_close(session.logits(tokens[:, kept:]), whole[:, kept:], tolerance)


def reset_forgets_everything(session: Session, tolerance: float) -> None:
    """`reset()` returns 0, and what follows knows nothing of what was before."""
    tokens = _tokens(session, batch=1, n=20)
    session.allocate(_SHORT, batch=1)
    fresh = session.logits(tokens[:, 10:])
    session.reset()
    session.prefill(tokens[:, :10])
    _decode(session, tokens[:, 10:14])
    kept = session.reset()
    _require(kept == 0, f"reset(0) kept {kept} tokens")
    _require_close(session.logits(tokens[:, 10:]), fresh, tolerance)


def sequences_of_a_batch_do_not_mix(session: Session, tolerance: float) -> None:
    """Each sequence of a batch gets the answers that it gets alone, in prefill, decode and logits."""
    tokens = _tokens(session, batch=3, n=16)
    session.allocate(_SHORT, batch=3)
    prefilled = session.prefill(tokens[:, :8]).copy()
    decoded = _decode(session, tokens[:, 8:12])
    together = session.logits(tokens[:, 12:])
    for row in range(3):
        session.allocate(_SHORT, batch=1)
        alone = session.logits(tokens[row : row + 1])
        _require_argmax(prefilled[row : row + 1], alone[:, 7], tolerance)
        for step, ids in enumerate(decoded):
            _require_argmax(ids[row : row + 1], alone[:, 8 + step], tolerance)
        _require_close(together[row : row + 1], alone[:, 12:], tolerance)


def allocate_starts_empty(session: Session, tolerance: float) -> None:
    """A second `allocate`, of another size and batch, drops what the first one held."""
    tokens = _tokens(session, batch=1, n=10)
    session.allocate(_SHORT, batch=1)
    session.reset()
    fresh = session.logits(tokens)
    session.allocate(2 * _SHORT, batch=2)
    session.prefill(_tokens(session, batch=2, n=7))
    session.allocate(_SHORT, batch=1)
    _require_close(session.logits(tokens), fresh, tolerance)


def allocation_holds_what_was_asked(session: Session, _: float) -> None:
    """`kv_allocated_tokens` is at least what was asked, and the cache takes that many."""
    session.allocate(_SHORT, batch=1)
    before = session.facts().kv_allocated_tokens
    session.prefill(_tokens(session, batch=1, n=_SHORT - 2))
    _decode(session, _tokens(session, batch=1, n=2))
    after = session.facts().kv_allocated_tokens
    _require(min(before, after) >= _SHORT, f"asked for {_SHORT} tokens, allocated {before}, then {after}")


def overflow_is_an_error(session: Session, _: float) -> None:
    """Tokens past the allocated context raise BackendError in every call, and the session lives on."""
    session.allocate(_SHORT, batch=1)
    room = session.facts().kv_allocated_tokens
    too_many = _tokens(session, batch=1, n=room + 1)
    _require_refused(lambda: session.prefill(too_many), "prefill")
    session.allocate(_SHORT, batch=1)
    _require_refused(lambda: session.logits(too_many), "logits")
    session.allocate(_SHORT, batch=1)
    session.prefill(too_many[:, :_SHORT])
    _require_refused(lambda: _decode(session, too_many[:, _SHORT - 1 :]), "decode")
    session.allocate(_SHORT, batch=1, kv_cache=False)
    _require_refused(lambda: list(session.recompute(too_many, room + 1)), "recompute")
    session.allocate(_SHORT, batch=1)
    session.prefill(too_many[:, :_SHORT])


def facts_are_sane(session: Session, _: float) -> None:
    """Facts after a run, with a KV cache and without: counts are positive, and every None has its reason."""
    tokens = _tokens(session, batch=1, n=4)
    session.allocate(_SHORT, batch=1)
    session.prefill(tokens)
    _check_facts(session)
    session.allocate(_SHORT, batch=1, kv_cache=False)
    list(session.recompute(tokens, 4))
    _check_facts(session)


def memory_is_sane(session: Session, _: float) -> None:
    """Memory after a prefill: positive, or None with its reason; a token takes at least one byte of cache."""
    session.allocate(_SHORT, batch=2)
    session.prefill(_tokens(session, batch=2, n=4))
    memory = session.memory()
    for name, minimum in (("peak_device_bytes", 1), ("kv_cache_bytes", 2 * _SHORT)):
        value = getattr(memory, name)
        _require_known_or_explained(name, value, memory.unavailable)
        _require(value is None or value >= minimum, f"{name} is {value}")


def experts_are_counted_or_not_told(session: Session, tolerance: float) -> None:
    """`experts_hit` is None or counts `[steps, layers]`: equal sequences read no more than one; then all goes on."""
    tokens = _tokens(session, batch=1, n=9)
    several = np.concatenate([tokens, tokens, _tokens(session, batch=3, n=9)])
    alone, alike, together = (session.experts_hit(text, 4) for text in (tokens, several[:2], several))
    if alone is not None and alike is not None and together is not None:
        _require(alone.ndim == 2 and len(alone) == 5 and alone.size > 0, f"5 steps gave counts {alone.shape}")
        _require(bool((alone >= 1).all()), f"a step reads {alone.min()} experts of a layer")
        _require(bool((alone == alike).all()), "two equal sequences read other experts than one")
        _require(bool((together >= alone).all()), "five sequences read fewer experts than one of them")
    _require((alone is None) == (alike is None) == (together is None), "it tells once, and then does not")
    session.allocate(_SHORT, batch=1)
    expected = session.logits(tokens)
    session.reset()
    _require_argmax(session.prefill(tokens), expected[:, -1], tolerance)


def closing_raises_nothing(session: Session, _: float) -> None:
    """`close` ends a session that still holds tokens."""
    session.allocate(_SHORT, batch=1)
    session.prefill(_tokens(session, batch=1, n=4))
    session.close()


def _check_facts(session: Session) -> None:
    facts = session.facts()
    for name in ("backend_version", "engine_build", "engine_mode", "device", "weight_format"):
        _require(bool(getattr(facts, name)), f"{name} is empty")
    for name in ("n_params", "weight_bytes"):
        value = getattr(facts, name)
        _require(value > 0, f"{name} is {value}")
    if (held := session.held()) is not None:
        sums = (sum(module.n_params for module in held), sum(module.n_bytes for module in held))
        _require(sums == (facts.n_params, facts.weight_bytes), f"modules hold {sums} parameters and bytes in all")
    # On a CPU the harness names the device and its memory: it knows them better than any engine.
    device = () if facts.device == "cpu" else ("device_name", "device_memory_bytes")
    for name in ("n_threads", "flash_attn", *device):
        _require_known_or_explained(name, getattr(facts, name), facts.unavailable)
    _require(facts.gpu_layers_effective >= 0, f"gpu_layers_effective is {facts.gpu_layers_effective}")
    settings = json.loads(json.dumps(facts.engine_settings))
    for text in _strings(settings):
        for word in text.split():
            absolute = PurePosixPath(word).is_absolute() or PureWindowsPath(word).is_absolute()
            _require(not absolute, f"engine_settings holds the path {word}")


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from _strings(item)


def _tokens(session: Session, *, batch: int, n: int) -> Ids:
    """Ids that differ between sequences and positions, the same at each call: `[batch, n]`."""
    drawn = np.random.default_rng(seed=[batch, n]).integers(session.vocab_size, size=(batch, n))
    return drawn.astype(np.int32)


def _decode(session: Session, tokens: Ids) -> list[Ids]:
    """Run decode to its end."""
    return _collected(session.decode(tokens), batch=len(tokens))


def _collected(steps: Iterator[Ids], *, batch: int) -> list[Ids]:
    """What each step yields. Copies, because a backend may reuse the array that it yields."""
    answers = []
    for ids in steps:
        _require_array(ids, (batch,), np.int32)
        answers.append(ids.copy())
    return answers


def _require(condition: bool, detail: str) -> None:
    if not condition:
        raise _BrokenClauseError(detail)


def _require_array(array: Any, shape: tuple[int, ...], dtype: type) -> None:
    _require(isinstance(array, np.ndarray), f"{type(array).__name__} instead of a numpy array")
    _require(array.shape == shape, f"shape {array.shape} instead of {shape}")
    _require(array.dtype == dtype, f"{array.dtype} instead of {np.dtype(dtype)}")


def _require_argmax(ids: Ids, logits: Logits, tolerance: float) -> None:
    """`ids` `[batch]` are argmaxes of `logits` `[batch, vocab]`."""
    _require_array(ids, (len(logits),), np.int32)
    gap = logits.max(axis=-1) - np.take_along_axis(logits, ids[:, None], axis=-1)[:, 0]
    allowed = tolerance * np.abs(logits).max(axis=-1)
    _require(bool((gap <= allowed).all()), f"argmax {ids}, expected {logits.argmax(axis=-1)}")


def _require_close(actual: Logits, expected: Logits, tolerance: float) -> None:
    """`[batch, n, vocab]` agree at every position."""
    _require_array(actual, expected.shape, np.float32)
    norm = np.linalg.norm(actual - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    worst = float(norm.max())
    position = int(norm.max(axis=0).argmax())
    _require(worst <= tolerance, f"relative L2 {worst:.2g} at position {position}, allowed {tolerance:.2g}")


def _require_refused(call: Callable[[], object], name: str) -> None:
    try:
        call()
    except BackendError:
        return
    raise _BrokenClauseError(f"{name} took more tokens than the cache holds")


def _require_known_or_explained(name: str, value: object, unavailable: dict[str, str]) -> None:
    _require(value is not None or bool(unavailable.get(name)), f"{name} is None and unavailable says no reason")
