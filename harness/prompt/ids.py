"""The token ids of a text, by the model's own tokenizer.

They are those of the words alone: nothing is put before them, no chat template is applied, and the name of a special
token in the text is read as text. One text and one tokenizer so give the same ids to every engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.errors import UserError
from harness.models.artifact_weights import gguf_header
from harness.models.gguf_export.tokenizer import STAND_IN
from harness.process import Worker, WorkerDiedError
from results.amounts import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from harness.models.source import ModelSource
    from harness.prompt.text import PromptText
    from harness.workload import Case

    Ids = NDArray[np.int32]

_SILENCE_S = 300.0


def prompt_ids(prompt: PromptText, sources: Iterable[ModelSource], cases: Sequence[Case]) -> dict[ModelSource, Ids]:
    """Tokenise a text for each model.

    Raises:
        UserError: a model has no tokenizer, its ids are not those of the model, or they are too few for a case.
    """
    ids = {source: _ids(prompt, source) for source in sources}
    largest = max(case.batch for case in cases)
    for source, known in ids.items():
        if largest > len(known):
            raise UserError(
                f"--prompt-file {prompt.name}: {counted(len(known), 'token')} for {source.name}, too few for {largest} "
                "sequences (-B), each of which begins at another one"
            )
    return ids


def repeated(ids: Mapping[ModelSource, Ids], cases: Sequence[Case]) -> list[str]:
    """What a person should know of a text that is shorter than a case, a sentence for each model."""
    needed = max(case.context_tokens for case in cases)
    return [
        f"the text has {counted(len(known), 'token')} for {source.name}, and a case reads {needed}: it is repeated"
        for source, known in ids.items()
        if len(known) < needed
    ]


def _ids(prompt: PromptText, source: ModelSource) -> Ids:
    if source.path is None:
        raise UserError(
            f"--prompt-file {prompt.name}: the preset {source.name} has no tokenizer of its own; "
            "give a Hugging Face directory or a .gguf file (-m)"
        )
    by_tokenizer = _by_llama_cpp if source.origin == "gguf" else _by_tokenizers
    ids = np.asarray(by_tokenizer(prompt.text, source.path), np.int32)
    if len(ids) < 2:
        raise UserError(
            f"--prompt-file {prompt.name}: {counted(len(ids), 'token')} for {source.name}; at least 2 are needed"
        )
    vocab_size = source.architecture.vocab_size
    if int(ids.max()) >= vocab_size:
        raise UserError(
            f"--prompt-file {prompt.name}: the tokenizer of {source.name} gives token {ids.max()}, and the model "
            f"has only {vocab_size}: it is another model's"
        )
    return ids


def _by_tokenizers(text: str, directory: Path) -> list[int]:
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise UserError(
            f"{directory}: no tokenizer.json, which --prompt-file needs; transformers writes one: "
            "AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
        )
    try:
        from tokenizers import Tokenizer  # noqa: PLC0415  # an engine's extra brings it
    except ImportError:
        raise UserError(
            "--prompt-file with a Hugging Face directory needs the package tokenizers: pip install tokenizers"
        ) from None
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library has no class of its own
        raise UserError(f"{path}: not a readable tokenizer: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # as the text that they are
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _by_llama_cpp(text: str, path: Path) -> list[int]:
    if gguf_header(path).metadata.get("general.description") == STAND_IN:
        raise UserError(f"{path}: its tokenizer is a stand-in for the model's own; give the Hugging Face directory")
    job = {"task": "tokenise", "backend": "llama.cpp", "artifact": str(path), "text": text}
    try:
        with Worker(job) as worker:
            for event in worker.events(_SILENCE_S):
                if event["event"] == "failed":
                    raise UserError(f"--prompt-file: {event['error']}")
                ids: list[int] = event["ids"]
    except WorkerDiedError as death:
        raise UserError(f"{path}: llama.cpp could not tokenise the text: {death.reason}") from death
    return ids
