"""The way of each step's ids to the host, without stopping the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from backends.torch.devices import ASYNCHRONOUS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from backends.base import Ids


class IdRing:
    """Two rows of pinned memory, an event each.

    Attributes:
        ahead: Steps to enqueue before the oldest is waited for: 1 on an asynchronous device, else 0.
    """

    def __init__(self, batch: int, device: torch.device) -> None:
        self.ahead = 1 if device.type in ASYNCHRONOUS else 0
        self._rows = torch.zeros(2, batch, dtype=torch.int32, pin_memory=bool(self.ahead))
        self._host: Ids = self._rows.numpy()
        self._events = [torch.Event(device) for _ in range(2 * self.ahead)]

    def to_host(self, enqueued: Iterable[torch.Tensor]) -> Iterator[Ids]:
        """Bring each step's `[batch]` ids to the host; where the device is asynchronous, with the next one enqueued."""
        step = -1
        for step, ids in enumerate(enqueued):
            self.push(step, ids)
            if step >= self.ahead:
                yield self.pop(step - self.ahead)
        if self.ahead and step >= 0:
            yield self.pop(step)

    def push(self, step: int, ids: torch.Tensor) -> None:
        """Enqueue the copy of `ids`, integers `[batch]`; blocks where the device is not asynchronous."""
        row = step % 2
        self._rows[row].copy_(ids.to(torch.int32), non_blocking=bool(self._events))
        if self._events:
            self._events[row].record()

    def pop(self, step: int) -> Ids:
        """Wait for that step's ids; the array is valid until the second push after that step's."""
        row = step % 2
        if self._events:
            self._events[row].synchronize()
        ids: Ids = self._host[row]
        return ids
