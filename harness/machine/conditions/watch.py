"""Watches the device from the parent process while a worker measures: in the worker it would disturb the timing."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.machine.conditions.looks import looker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.machine.conditions.looks import Look, Looker

_EVERY_S = 1.0


@dataclass(frozen=True)
class Seen:
    """What was seen during one repetition.

    Attributes:
        values: `temp_c_max` and `throttled`, where they are known.
        missing: column -> why it is not.
        details: JSON-serialisable: how often was looked, and of each fact the lowest and the highest value, or all
            that it said.
    """

    values: dict[str, float | str]
    missing: dict[str, str]
    details: dict[str, Any]


class Watch:
    """Looks once a second, and whenever it is asked.

    Args:
        look: looks once.
    """

    def __init__(self, look: Looker) -> None:
        self._look_once = look
        self._looks: list[Look] = []
        self._lock = threading.Lock()
        self._over = threading.Event()

    def since(self, start_s: float) -> Seen:
        """What was seen from a moment until now; what came before is forgotten.

        Args:
            start_s: seconds since 1970.
        """
        self._look()
        with self._lock:
            self._looks = [look for look in self._looks if look.at_s >= start_s] or self._looks[-1:]
            return summary(self._looks)

    def run(self) -> None:
        """Look until `stop`."""
        while not self._over.wait(_EVERY_S):
            self._look()

    def stop(self) -> None:
        """End `run`."""
        self._over.set()

    def _look(self) -> None:
        with self._lock:
            self._looks.append(self._look_once())


@contextmanager
def watch(device: str, device_name: str | None) -> Iterator[Watch]:
    """Watch a device, as `looker` takes it, until the block ends."""
    with looker(device, device_name) as look:
        watching = Watch(look)
        thread = threading.Thread(target=watching.run, daemon=True)
        thread.start()
        try:
            yield watching
        finally:
            watching.stop()
            thread.join()


def summary(looks: list[Look]) -> Seen:
    """What some looks say together, at least one."""
    temperatures = [look.temp_c for look in looks if look.temp_c is not None]
    reasons = [look.held_back for look in looks if look.held_back is not None]
    values: dict[str, float | str] = {}
    if temperatures:
        values["temp_c_max"] = float(max(temperatures))
    if reasons:
        values["throttled"] = ", ".join(sorted(frozenset().union(*reasons))) or "no"
    return Seen(
        values=values,
        missing={column: why for column, why in looks[-1].missing.items() if column not in values},
        details={"looks": len(looks)} | {name: said for name in looks[-1].facts if (said := _said(looks, name))},
    )


def _said(looks: list[Look], name: str) -> Any:
    """The lowest and the highest number, or the different texts; None where nobody said anything."""
    said = [one for look in looks if (one := look.facts.get(name)) is not None]
    numbers = [one for one in said if not isinstance(one, str)]
    return [min(numbers), max(numbers)] if numbers else sorted(map(str, set(said))) or None
