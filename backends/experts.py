"""The experts of each decode step, for engines whose modules can be watched while they compute."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from backends.base import Ids, Session

T = TypeVar("T")


def step_by_step(
    session: Session,
    tokens: Ids,
    first: int,
    watched: Callable[[], AbstractContextManager[list[T]]],
    on_host: Callable[[T], NDArray[np.integer]],
) -> NDArray[np.int64] | None:
    """What `Session.experts_hit` gives, of prefills of one token each.

    Args:
        session: the engine's.
        tokens: as for `Session.experts_hit`.
        first: likewise.
        watched: within it, each layer's experts add the numbers of the chosen ones to the list.
        on_host: makes such numbers a numpy array.
    """
    batch, n = tokens.shape
    session.allocate(n, batch)
    if first:
        session.prefill(tokens[:, :first])
    counts = []
    for step in range(first, n):
        with watched() as seen:
            session.prefill(tokens[:, step : step + 1])
        counts.append([len(np.unique(on_host(chosen))) for chosen in seen])
    return np.array(counts, np.int64) if counts[0] else None
