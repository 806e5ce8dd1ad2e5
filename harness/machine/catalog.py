"""The device catalog: which device a name means, whether a driver or a person gave it."""

from __future__ import annotations

import difflib
import functools
import io
import math
import re
from importlib import resources

from harness.errors import UserError
from harness.machine.device import Device, metal_working_set_bytes, usable_bytes
from harness.machine.devices_file import read_devices

__all__ = [
    "AmbiguousDeviceError",
    "Device",
    "find",
    "load_catalog",
    "match",
    "metal_working_set_bytes",
    "usable_bytes",
]

# A driver reports less than was sold: 15/16 with ECC on GDDR6, 7.4 of an Orin Nano's 8 GiB.
_LARGEST_SIZE_RATIO = 1.12

# Words after a model's number that make another device of it. Before the number they name its line: the W7900 is PRO.
_VARIANTS = frozenset(
    ["ti", "super", "xt", "xtx", "gre", "d", "v2", "laptop", "mobile", "maxq", "max", "ultra", "pro", "ada", "nvl"]
)


class AmbiguousDeviceError(UserError):
    """A name that several devices bear, and nothing was given that tells them apart.

    Attributes:
        candidates: the devices of that name.
    """

    def __init__(self, name: str, candidates: list[Device]) -> None:
        self.candidates = tuple(candidates)
        listed = ", ".join(f"{device.id} ({device.name})" for device in candidates)
        super().__init__(f'"{name}" names {len(candidates)} devices: {listed}; give {_second_key(candidates)}')


@functools.cache
def load_catalog() -> tuple[Device, ...]:
    """Every device of the catalog that comes with tokenroof.

    Raises:
        UserError: the file is damaged.
    """
    text = resources.files("harness.machine").joinpath("devices.csv").read_text(encoding="utf-8")
    return read_devices(io.StringIO(text))


def match(
    name: str, *, memory_bytes: int | None = None, gpu_cores: int | None = None, power_mode: str | None = None
) -> Device | None:
    """The device that a driver means: torch, NVML, Metal, sysctl, /proc/device-tree/model.

    The keywords count only where several devices bear the name.

    Args:
        name: as the driver gives it, "NVIDIA GeForce RTX 3080".
        memory_bytes: total memory as the driver reports it: of the card, or of a Mac.
        gpu_cores: of an Apple GPU.
        power_mode: of a Jetson, as `nvpmodel -q` names it.

    Returns:
        The device; None where the catalog has none of that name, or none with that second key.

    Raises:
        AmbiguousDeviceError: several bear the name, and the key that tells them apart was not given.
    """
    devices = [
        device for device in load_catalog() if device.match_regex and re.search(device.match_regex, name, re.IGNORECASE)
    ]
    if len(devices) > 1:
        if gpu_cores is not None and devices[0].gpu_cores:
            devices = [device for device in devices if device.gpu_cores == gpu_cores]
        elif any(power_mode in device.power_modes for device in devices):
            devices = [device for device in devices if power_mode in device.power_modes]
        elif memory_bytes is not None:
            devices = _of_size(devices, memory_bytes)
    if len(devices) > 1:
        raise AmbiguousDeviceError(name, devices)
    return devices[0] if devices else None


def find(text: str) -> Device:
    """The device that a person means: an id, a name, or words of either, in any case ("RTX 5090", "m4 max 40").

    A device is meant only where no plainer one fits: "RTX 5090" is not the RTX 5090 D, and "RTX 2080" is not the
    RTX 2080 Ti, though the catalog has no other.

    Raises:
        AmbiguousDeviceError: several fit equally.
        UserError: none fits, or only a variant that the text does not name; the nearest names are given.
    """
    for device in load_catalog():
        if text.strip().lower() in {device.id, device.name.lower()}:
            return device
    wanted = _wanted(text)
    fitting = [device for device in load_catalog() if wanted and wanted <= _all_words(device)]
    plainest = [it for it in fitting if not any(_family(other) < _family(it) for other in fitting)]
    if len(plainest) > 1 and not all(_is_another(device, wanted) for device in plainest):
        raise AmbiguousDeviceError(text, plainest)
    found = plainest[0] if plainest else match(text.strip())
    if found is None or _is_another(found, wanted):
        near = list(dict.fromkeys([*(device.name for device in plainest), *_nearest(text)]))[:3]
        hint = f"; near it: {', '.join(near)}" if near else ""
        raise UserError(f'the catalog has no device "{text}"{hint} (tokenroof devices lists all)')
    return found


def _of_size(devices: list[Device], memory_bytes: int) -> list[Device]:
    """Those that are sold with the size nearest to a driver's figure."""
    distances = {
        device.id: min(abs(math.log(memory_bytes / (size * 2**30))) for size in _sizes_gb(device)) for device in devices
    }
    nearest = min(distances.values())
    if nearest > math.log(_LARGEST_SIZE_RATIO):
        return []
    return [device for device in devices if distances[device.id] == nearest]


def _sizes_gb(device: Device) -> tuple[float, ...]:
    return device.memory_options_gb or ((device.memory_gb,) if device.memory_gb else ())


def _second_key(devices: list[Device]) -> str:
    """What tells devices of one name apart, in words."""
    keys: dict[str, set[object]] = {
        "the number of GPU cores": {device.gpu_cores for device in devices},
        "the power mode": {device.power_modes for device in devices},
        "the memory size": {_sizes_gb(device) for device in devices},
    }
    one_name = devices[0].match_regex is not None and len({device.match_regex for device in devices}) == 1
    telling = [words for words, values in keys.items() if one_name and len(values) == len(devices)]
    return " or ".join([*telling, "the id"])


def _words(text: str) -> frozenset[str]:
    return frozenset(_spelled(text))


def _spelled(text: str) -> list[str]:
    """Lower case, with "10 GB" and "Max-Q" one word."""
    joined = re.sub(r"\bmax[- ]q\b", "maxq", re.sub(r"(\d)\s*gb\b", r"\1gb", text.lower()))
    return re.findall(r"[a-z0-9]+", joined)


def _wanted(text: str) -> frozenset[str]:
    """The words of what a person typed, also those that were typed as one: "rtx5090", "5070ti"."""
    return frozenset(part for word in _spelled(text) for part in _parts(word) or [word])


def _parts(word: str) -> list[str]:
    """Words of the catalog, between letters and digits, that this one is put together from; none if it is not."""
    if word in _vocabulary():
        return [word]
    for border in re.finditer(r"(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])", word):
        head, tail = word[: border.start()], word[border.start() :]
        if head in _vocabulary() and (rest := _parts(tail)):
            return [head, *rest]
    return []


@functools.cache
def _vocabulary() -> frozenset[str]:
    return frozenset().union(*map(_all_words, load_catalog()))


def _is_another(device: Device, wanted: frozenset[str]) -> bool:
    """Whether its name has a variant's word after the model's number that was not asked for, or lacks one that was."""
    words = _spelled(_without_brackets(device))
    numbers = [place for place, word in enumerate(words) if re.search(r"\d", word)]
    after = words[numbers[0] + 1 :] if numbers and words[numbers[0]] in wanted else []
    return not (_VARIANTS.intersection(after) <= wanted and _VARIANTS & wanted <= _all_words(device))


@functools.cache
def _all_words(device: Device) -> frozenset[str]:
    sizes = " ".join(f"{size:g}GB" for size in _sizes_gb(device))
    return _words(f"{device.name} {device.id} {device.vendor} {device.memory_type} {sizes}")


@functools.cache
def _family(device: Device) -> frozenset[str]:
    """The words of a name without its variant: what stands in brackets, and memory sizes."""
    return frozenset(word for word in _spelled(_without_brackets(device)) if not re.fullmatch(r"\d+gb", word))


def _without_brackets(device: Device) -> str:
    return re.sub(r"\(.*?\)", "", device.name)


def _nearest(text: str) -> list[str]:
    names = {}
    for device in load_catalog():
        for spelling in (device.name, device.name.split(" ", 1)[-1], device.id):
            names[spelling.lower()] = device.name
    close = difflib.get_close_matches(text.strip().lower(), names, n=6, cutoff=0.5)
    return list(dict.fromkeys(names[spelling] for spelling in close))[:3]
