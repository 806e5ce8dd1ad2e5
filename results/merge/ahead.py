"""Work that is done while the results of earlier work are used."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    Item = TypeVar("Item")
    Result = TypeVar("Result")

_AHEAD = 4  # items begun beyond the one in use, so that memory holds no more


def ahead(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Future[Result]]:
    """What `work` makes of each item, in their order; threads begin the next few meanwhile."""
    with ThreadPoolExecutor() as pool:
        begun: deque[Future[Result]] = deque()
        for item in items:
            begun.append(pool.submit(work, item))
            if len(begun) > _AHEAD:
                yield begun.popleft()
        while begun:
            yield begun.popleft()
