"""The gguf package, which an export needs and which may not be installed."""

from __future__ import annotations

from typing import Any

from harness.errors import UserError


def gguf_package() -> Any:
    """The module `gguf`.

    Raises:
        UserError: it is not installed.
    """
    try:
        import gguf  # noqa: PLC0415  # an extra, like every engine
    except ImportError as error:
        raise UserError('writing GGUF needs the gguf package: pip install "tokenroof[llama]"') from error
    return gguf
