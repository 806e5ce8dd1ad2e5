"""Which engines a run uses, and the stop before an engine would measure the wrong device."""

from __future__ import annotations

import difflib
import platform
from typing import TYPE_CHECKING

from backends.install import install_line, rebuild_line
from backends.registry import BACKENDS, ENGINES
from harness.errors import UserError
from harness.machine.engines import describe

if TYPE_CHECKING:
    from backends.base import EngineInfo
    from harness.machine.hardware import Machine
    from harness.options import Options

_MLX_CPU = "its CPU backend is slow (about 3 GB/s seen) and says nothing of MLX on a GPU"


def choose(options: Options, machine: Machine) -> tuple[dict[str, EngineInfo], list[str]]:
    """The engines to run and what the user should know of the choice.

    Named engines must work. Without names: every installed one that is at home on this machine.

    Raises:
        UserError: a named engine is unknown, missing or broken; none can run; or one cannot use this machine's GPU.
    """
    engines, notes = _at_home(options) if options.backends is None else (_named(options, options.backends), [])
    for name, info in engines.items():
        _check_device(name, info, options, machine)
        if name == "mlx" and not info.accelerators:
            notes.append(f"mlx runs on the CPU: {_MLX_CPU}")
        if name == "simulated":
            notes.append("simulated rows measure no machine: they prove the harness's own timing")
    return engines, notes


def _named(options: Options, names: tuple[str, ...]) -> dict[str, EngineInfo]:
    for name in names:
        if name not in BACKENDS:
            near = difflib.get_close_matches(name, ENGINES, 1, 0.5)
            hint = f", did you mean {near[0]}?" if near else ""
            raise UserError(f"--backend {name}: no such engine{hint} (there are {', '.join(ENGINES)})")
        if not BACKENDS[name].installed:
            raise UserError(f'{name} is not installed: pip install "tokenroof[{BACKENDS[name].extra}]"')
    engines = {}
    for name, info in describe(names, options.rpc).items():
        if isinstance(info, str):
            _refuse_tiers(name, info, options)
            raise UserError(f"{name} is installed but cannot be loaded: {info}")
        engines[name] = info
    return engines


def _at_home(options: Options) -> tuple[dict[str, EngineInfo], list[str]]:
    engines, notes = {}, []
    for name, info in describe([name for name in ENGINES if BACKENDS[name].installed], options.rpc).items():
        if isinstance(info, str):
            _refuse_tiers(name, info, options)
            notes.append(f"{name} left out, it cannot be loaded: {info}")
        elif info.accelerators and not _knows(info, options.device):
            notes.append(f"{name} left out: it knows no --device {options.device}")
        elif name == "mlx" and (not info.accelerators or options.device == "cpu"):
            notes.append(f"mlx left out: {_MLX_CPU}; --backend mlx runs it all the same")
        else:
            engines[name] = info
    if not engines:
        left_out = f" ({'; '.join(notes)})" if notes else ""
        raise UserError(f'no engine can run: pip install "tokenroof[all]", or [torch], [mlx], [llama]{left_out}')
    return engines, notes


def _refuse_tiers(name: str, why: str, options: Options) -> None:
    """Without the memories that were named there is nothing to run."""
    if options.rpc and BACKENDS[name].places_layers:
        raise UserError(f"--rpc {','.join(options.rpc)}: {why}")


def _check_device(name: str, info: EngineInfo, options: Options, machine: Machine) -> None:
    if name == "simulated" or options.device == "cpu":
        return
    if info.accelerators:
        if not _knows(info, options.device):
            known = ", ".join(accelerator.id for accelerator in info.accelerators)
            raise UserError(f"--device {options.device}: {name} knows cpu, gpu, {known}")
        return
    if options.n_gpu_layers != (0,):
        for gpu in machine.gpus:
            if line := install_line(name, gpu.vendor, platform.system()):
                raise UserError(
                    f"this machine has a {gpu.name}, but the installed {name} cannot use it. Install it with: {line}"
                    " (or say --device cpu if the CPU is what you mean)"
                )
    if BACKENDS[name].places_layers and (asked := max(options.n_gpu_layers)) > 0:
        raise UserError(
            f"-ngl {asked}: the installed {name} sees no GPU: built without offload, or no driver. "
            f"Rebuild it with: {rebuild_line(platform.system())}"
        )
    if options.device != "auto":
        raise UserError(f"--device {options.device}: the installed {name} sees no accelerator on this machine")


def _knows(info: EngineInfo, device: str) -> bool:
    return device in {"auto", "cpu", "gpu", *(accelerator.id for accelerator in info.accelerators)}
