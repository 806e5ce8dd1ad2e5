"""What a user should know of the machine's condition before a run starts, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.machine import nvml
from harness.machine.conditions import governor, heat, load
from harness.machine.conditions.power_source import power_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LOOK_S = 0.3
_BUSY_PCT = 10


def warnings(gpu_names: Iterable[str]) -> list[str]:
    """What makes rates lower, or less steady, than this machine can; looks for a third of a second.

    Args:
        gpu_names: of the GPUs that the run will use.
    """
    return [*_load(), *_power(), *_frequency(), *_heat(), *_gpus(", ".join(gpu_names))]


def _load() -> Iterator[str]:
    busy_pct, busiest = load.look(_LOOK_S)
    if busy_pct >= _BUSY_PCT:
        who = f" (most of all {busiest})" if busiest else ""
        yield (
            f"other processes keep the CPU {busy_pct:.0f} % busy{who}: rates will be lower and unsteady; end them, or "
            "wait until they are done"
        )


def _power() -> Iterator[str]:
    if power_source() == "battery":
        yield "on battery: most machines run slower then, and ever slower; plug it in"


def _frequency() -> Iterator[str]:
    for policy in governor.policies():
        if policy.saves_power:
            yield (
                f"the CPU governor is {policy}: prefill and decode may be slower; "
                "`sudo cpupower frequency-set -g performance`, or take the performance profile in the power settings"
            )


def _heat() -> Iterator[str]:
    pressure = heat.thermal_pressure()
    if pressure not in {None, "nominal"}:
        yield f"macOS holds the machine back for its heat (thermal pressure: {pressure}); let it cool down first"


def _gpus(names: str) -> Iterator[str]:
    with nvml.open_gpus(names) as gpus:
        for gpu in gpus:
            state = gpu.state()
            if state.held_back:
                yield (
                    f"{gpu.name} is held back before the run starts: {', '.join(sorted(state.held_back))}; "
                    "`nvidia-smi -q -d PERFORMANCE` says more"
                )
            limit_w, usual_w = state.power_limit_w, state.default_power_limit_w
            if limit_w and usual_w and limit_w < usual_w:
                yield (
                    f"{gpu.name} may draw {limit_w:.0f} W of its usual {usual_w:.0f} W: prefill will be slower; "
                    f"`sudo nvidia-smi -pl {usual_w:.0f}` sets it back"
                )
