"""A file in one of llama.cpp's mixtures, as its quantiser would write it from the exported one."""

from __future__ import annotations

import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harness.roofline.hf_config import from_hf_config
from harness.roofline.nominal import element_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    from harness.models.gguf_export.config import Config

    Rows = Callable[[NDArray[np.float32], str], NDArray[np.uint8]]

_MATRIX = re.compile(r"(?:blk\.(?P<layer>\d+)\.)?(?P<matrix>\w+)\.weight")
_LAYER = re.compile(r"blk\.(\d+)\.")
_AS_ONE = {"attn_qkv": "attn_v"}  # whose format the fused matrix gets


@dataclass(frozen=True)
class Quantiser:
    """llama.cpp's own code, one block of rows after the other.

    Attributes:
        rows: of `[rows, length]` numbers and the lower-case name of an element format, their bytes.
        n_threads: that call it at once.
    """

    rows: Rows
    n_threads: int

    def encoded(self, blocks: Iterable[NDArray[Any]], element_format: str, length: int) -> Iterator[NDArray[np.uint8]]:
        """The bytes of each block of whole rows of this length, in order."""

        def encode(block: NDArray[Any]) -> NDArray[np.uint8]:
            return self.rows(np.ascontiguousarray(block, np.float32).reshape(-1, length), element_format)

        ahead: deque[Any] = deque()
        with ThreadPoolExecutor(self.n_threads) as threads:
            for block in blocks:
                ahead.append(threads.submit(encode, block))
                if len(ahead) > self.n_threads:  # no more than that in memory
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()


def formats(config: Config, mixture: str) -> Callable[[str], str]:
    """What tells a matrix's element format by its name in GGUF.

    Raises:
        ValueError: there is no such mixture.
    """
    known = element_formats(from_hf_config(config), mixture)

    def format_of(name: str) -> str:
        found = _MATRIX.fullmatch(name)
        if found is None:
            raise ValueError(f"no format of a mixture is known for {name}")
        layer = int(found["layer"]) if found["layer"] else None
        return known[layer, _AS_ONE.get(found["matrix"], found["matrix"])]

    return format_of


def place(name: str) -> tuple[int, str]:
    """The order in which llama.cpp's quantiser writes tensors: what is in no layer first, then layer by layer."""
    found = _LAYER.match(name)
    return int(found[1]) if found else -1, name
