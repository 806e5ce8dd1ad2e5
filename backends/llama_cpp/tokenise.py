"""Text to token ids by the tokenizer of a GGUF file, of which nothing else is loaded."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING

from backends.base import BackendError
from backends.llama_cpp import library, overrides

if TYPE_CHECKING:
    from pathlib import Path


def tokenise(path: Path, text: str) -> list[int]:
    """The ids of a text alone: no special token is put before it, and none is read in it.

    Raises:
        BackendError: the file cannot be read or has no tokenizer.
    """
    llama, log = library.start()
    log.attach(llama)
    log.clear()
    params = llama.llama_model_default_params()
    params.vocab_only = True
    no_devices = overrides.device_list([])
    params.devices = ctypes.addressof(no_devices)
    model = llama.llama_model_load_from_file(os.fsencode(path), params)
    if not model:
        raise BackendError(f"{path.name}: {log.take_errors().replace(str(path), path.name)}")
    try:
        vocab = llama.llama_model_get_vocab(model)
        if llama.llama_vocab_type(vocab) == llama.LLAMA_VOCAB_TYPE_NONE:
            raise BackendError(f"{path.name} has no tokenizer")
        content = text.encode()
        ids = (llama.llama_token * (len(content) + 1))()  # a token is a byte at least, and SPM puts a space before all
        n = llama.llama_tokenize(vocab, content, len(content), ids, len(ids), False, False)
        if n < 0:
            raise BackendError(f"{path.name}: its tokenizer makes {-n} tokens of {len(content)} bytes")
        return list(ids[:n])
    finally:
        llama.llama_model_free(model)
