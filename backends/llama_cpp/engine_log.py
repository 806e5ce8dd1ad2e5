"""llama.cpp's own log, kept and read: the only place where it says which buffers it put where."""

from __future__ import annotations

import ctypes
import re
import sys
from collections import deque
from typing import TYPE_CHECKING

from backends.llama_cpp import ggml
from backends.llama_cpp.rpc import without_addresses

if TYPE_CHECKING:
    from types import ModuleType

# Enough for the load of a model with hundreds of layers at debug level; older pieces fall out.
_KEPT_PIECES = 20_000
_ERROR_LEVEL = 4  # GGML_LOG_LEVEL_ERROR

_BUFFER = re.compile(r"(\S+) +(model|KV|RS|compute|output) buffer size *= *([\d.]+) MiB")
_LAYER = re.compile(r"layer +(\d+) assigned to device (\S+?),")
_FLASH_ATTENTION = re.compile(r"(?:flash_attn += |Flash Attention .*?)(enabled|disabled)")
_LOAD_MODE = re.compile(r"load_mode = (\w+)")
_SOURCE_LINE = re.compile(r"^.*?\.\w+:\d+: ")


class EngineLog:
    """What llama.cpp logged since the last `clear`, at most the latest pieces of it."""

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, str]] = deque(maxlen=_KEPT_PIECES)

    def attach(self, llama_cpp: ModuleType) -> None:
        """Lead llama.cpp's log here, away from the terminal."""
        # llama.cpp holds no reference of its own to the callback.
        self._callback = llama_cpp.llama_log_callback(self._record)
        llama_cpp.llama_log_set(self._callback, None)

    def lead_last_words(self) -> None:
        """Have ggml say in one line on stderr why it ends the process, and no more.

        By itself it starts a debugger, which takes seconds and prints the paths of this machine.
        """
        declare = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
        self._last_words = declare(lambda text: print(last_words(text.decode(errors="replace")), file=sys.stderr))
        ggml.function("ggml_set_abort_callback", ctypes.c_void_p, declare)(self._last_words)

    def _record(self, level: int, text: bytes, _user_data: int | None) -> None:
        self._pieces.append((level, without_addresses(text.decode(errors="replace"))))

    def clear(self) -> None:
        """Forget everything."""
        self._pieces.clear()

    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self._pieces)

    def take_errors(self) -> str:
        """The first error messages in one line, the cause before what it led to; then forget everything."""
        lines = [text.strip() for level, text in self._pieces if level == _ERROR_LEVEL]
        self.clear()
        # A message starts with the name of the C++ function that logged it.
        messages = dict.fromkeys(line.partition(": ")[2] or line for line in lines)
        return "; ".join(list(messages)[:3]) or "llama.cpp gave no reason"


def last_words(text: str) -> str:
    """Why ggml ends the process, without the line of its source and without an RPC server's address.

    Args:
        text: "…/ggml-rpc.cpp:566: Remote RPC server crashed or returned malformed response".
    """
    return f"llama.cpp: {without_addresses(_SOURCE_LINE.sub('', text.strip()))}"


def buffer_bytes(text: str) -> dict[str, dict[str, int]]:
    """Bytes of each buffer by name ("CPU_Mapped", "CUDA0") and use ("model", "kv", "compute", "output").

    llama.cpp prints MiB with two decimals, so each figure is right to 5 KiB. A recurrent state (RS) is what
    such a model has for a KV cache, and counts as one.
    """
    sizes: dict[str, dict[str, int]] = {}
    for name, kind, mebibytes in _BUFFER.findall(text):
        use = "kv" if kind == "RS" else kind.lower()
        uses = sizes.setdefault(name, {})
        uses[use] = uses.get(use, 0) + round(float(mebibytes) * 2**20)
    return sizes


def on_device(buffers: dict[str, dict[str, int]], device: str) -> dict[str, int]:
    """Bytes of each use in a device's own memory: Metal's "MTL0" also has "MTL0_Mapped", "MTL0_Private"."""
    total: dict[str, int] = {}
    for name, uses in buffers.items():
        if name == device or name.startswith(f"{device}_"):
            for use, size in uses.items():
                total[use] = total.get(use, 0) + size
    return total


def layer_devices(text: str) -> list[str]:
    """The device to which each layer was assigned, the output layer last."""
    return [device for _, device in sorted((int(layer), device) for layer, device in _LAYER.findall(text))]


def load_mode(text: str) -> str | None:
    """How the file was read: "mmap", "none", …; None where the log does not say."""
    found = _LOAD_MODE.search(text)
    return found and found[1]


def flash_attention(text: str) -> str | None:
    """What is in effect, also where "auto" was asked: "on" or "off"; None where the log does not say."""
    found = _FLASH_ATTENTION.search(text)
    return found and {"enabled": "on", "disabled": "off"}[found[1]]
