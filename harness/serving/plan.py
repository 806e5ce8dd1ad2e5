"""What will be asked of a server. Everything that can be refused before it is called is refused here."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from backends.openai import NAME
from harness.errors import UserError
from harness.limits import check_context
from harness.machine.catalog import AmbiguousDeviceError, find
from harness.machine.hardware import inspect
from harness.machine.spec import catalog_device
from harness.models.source import resolve_shape
from harness.options import ANCHOR_GEN, ANCHOR_PROMPT, Options
from harness.quantise.names import check_known
from harness.serving.endpoint import endpoint
from harness.workload import grid
from results.machine_label import machine_label
from results.safe_text import as_file_name, one_line

if TYPE_CHECKING:
    from harness.machine.device import Device
    from harness.machine.hardware import Machine
    from harness.models.source import ModelSource
    from harness.serving.endpoint import Endpoint
    from harness.workload import Case

_REPETITIONS = 3
_SILENCE_S = 300.0
_MOST_STREAMS = 1000


@dataclass(frozen=True)
class ServingPlan:
    """A run that can be started with `harness.serving.runner.run(plan)`.

    Attributes:
        endpoint: where the server listens.
        given: the model as -m names it.
        model: its name in the rows.
        served: its name on the server.
        source: the model's shape and files; None: nothing here tells them.
        weights: the format that the server holds, as -w says; None: as the model's files are.
        cases: what is asked, in order; a case's batch is the number of streams at once.
        repetitions: rounds of each case.
        rate: requests a second, where they come by chance; None: all of a round at once.
        machine: the server's, where it is this one.
        device: the server's, where --on names it.
        label: the server's machine in the rows.
    """

    endpoint: Endpoint
    given: str
    model: str
    served: str
    source: ModelSource | None
    weights: str | None
    cases: tuple[Case, ...]
    repetitions: int
    rate: float | None
    seed: int
    machine: Machine | None
    device: Device | None
    label: str
    output: Path
    resume: bool
    max_time_s: float | None
    silence_s: float
    notes: tuple[str, ...]

    def asked(self) -> dict[str, object]:
        """For the row: what was asked, beside the case."""
        asked = {
            "weights": self.weights,
            "request_rate": self.rate,
            "on": self.device and self.device.id,
            "served": None if self.served in {self.model, self.given} else _last_part(self.served),
        }
        return {name: value for name, value in asked.items() if value is not None}


def make_plan(options: Options) -> ServingPlan:
    """Decide what to ask of the server; it is not called yet.

    Raises:
        UserError: something in the request cannot be done.
    """
    _check(options)
    served_at = endpoint(options.base_url or "", options.api_key)
    name = options.models[0]
    source, no_source = _source(name)
    device = find(options.on) if options.on else None
    machine = inspect() if served_at.is_local else None
    if machine and device and not _has(machine, device):
        machine = None  # a tunnel leads to another one
    label = _label(options, device, machine)
    model = source.name if source else _last_part(name)
    asked = grid(
        options.n_depth,
        options.n_prompt or (ANCHOR_PROMPT,),
        options.n_gen or (ANCHOR_GEN,),
        options.batch,
        options.kv_cache,
    )
    if source:
        check_context(source, tuple(asked))
    return ServingPlan(
        endpoint=served_at,
        given=name,
        model=one_line(model),
        served=dict(options.artifacts).get(NAME, name),
        source=source,
        weights=options.weights[0] if options.weights else None,
        cases=tuple(dict.fromkeys(_as_sent(case) for case in asked)),
        repetitions=options.repetitions or _REPETITIONS,
        rate=options.rate,
        seed=options.seed,
        machine=machine,
        device=device,
        label=label,
        output=options.output or Path(f"{as_file_name(label) or 'machine'}.csv"),
        resume=options.resume,
        max_time_s=options.max_time_s,
        silence_s=options.timeout_s or _SILENCE_S,
        notes=(*no_source, *_notes(options)),
    )


def _check(options: Options) -> None:
    if options.backends != (NAME,):
        others = ", ".join(name for name in options.backends or () if name != NAME)
        raise UserError(f"--backend {NAME} measures a server and runs alone; run {others} in a command of its own")
    if not options.base_url:
        raise UserError(f"--backend {NAME} needs the server's address: --base-url http://127.0.0.1:8080/v1")
    if find_spec("httpx2") is None:
        raise UserError(f'--backend {NAME} needs an HTTP client: pip install "tokenroof[serving]"')
    if len(options.models) != 1 or not options.models[0].strip():
        raise UserError(f"--backend {NAME} takes one -m: what the rows call the model that the server holds")
    if len(options.weights or ()) > 1:
        raise UserError(f"-w {','.join(options.weights or ())}: a server holds one format; name that one")
    check_known(options.weights or ())
    _check_cases(options)


def _check_cases(options: Options) -> None:
    if 0 in (options.n_prompt or ()):
        raise UserError("-p 0: a server is always given a prompt; at least 1 token")
    if "off" in options.kv_cache:
        raise UserError("--kv-cache off: no server decodes without its KV cache")
    if max(options.batch) > _MOST_STREAMS:
        raise UserError(
            f"--concurrency {max(options.batch)}: more than the {_MOST_STREAMS} streams that one client keeps"
        )
    if options.rate and min(options.batch) == 1:
        raise UserError(f"--rate {options.rate:g}: one request has no rate; give a round several: --concurrency 32")
    if "prefix" in options.kv_cache and 0 in options.n_depth:
        raise UserError("--prefix-cache measures a prompt whose first -d tokens are cached: give -d, at least 1")


def _source(name: str) -> tuple[ModelSource | None, tuple[str, ...]]:
    """The model's shape, where the name tells it, and why files of that name do not.

    The server may call its model anything, so a name that tells nothing is no mistake.
    """
    try:
        return resolve_shape(name), ()
    except UserError as error:
        return None, (f"{error}; so there is no ceiling",) if Path(name).exists() else ()


def _label(options: Options, device: Device | None, machine: Machine | None) -> str:
    if options.machine is not None:
        label = one_line(options.machine).strip()
        if not label:
            raise UserError("--machine needs a label with something in it")
        return label
    if machine is not None:
        return one_line(machine.label)
    if device is not None:
        return machine_label(device.name)
    raise UserError("which machine is the server's? Name it with --machine LABEL, or --on DEVICE as in --on RTX-5090")


def _has(machine: Machine, device: Device) -> bool:
    """Whether a device of the catalog is one of this machine's."""
    for name in (None, *(gpu.name for gpu in machine.gpus)):
        try:
            if catalog_device(machine, name) == device:
                return True
        except AmbiguousDeviceError as error:
            if device in error.candidates:
                return True
    return False


def _as_sent(case: Case) -> Case:
    """Without a reused prefix, tokens in front of the prompt are a part of it: a server is sent one prompt."""
    return case if case.kv_cache == "prefix" else replace(case, n_depth=0, n_prompt=case.decode_start)


def _notes(options: Options) -> list[str]:
    notes = []
    if any(options.n_depth) and "on" in options.kv_cache:
        notes.append("-d: the server is sent one prompt of -d and -p tokens, so its TTFT is that of both together")
    return notes


def _last_part(name: str) -> str:
    """Of a path, which may begin with a home directory; a repository's name stays whole."""
    return re.split(r"[/\\]", name.rstrip("/\\"))[-1] if Path(name).is_absolute() or name.startswith(".") else name
