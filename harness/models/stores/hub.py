"""Hugging Face's cache: `models--ORG--NAME/`, where `refs/main` names the commit and `snapshots/COMMIT/` has its files.

Nothing is fetched unless `download` is called.
"""

from __future__ import annotations

import re
from pathlib import Path

from harness.errors import UserError
from harness.models.safetensors_file import missing_shards
from harness.models.stores.listing import listing

_REPOSITORY = re.compile(r"(?P<id>\w[\w.-]*/[\w.-]+)(?P<file>/.+\.gguf)?")
# Weights, configuration and tokenizer; no pickle files, no code.
_WANTED = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken"]
_NOT_WANTED = ["*/*.safetensors", "consolidated*"]  # the same weights once more, for another program


def is_repository(spec: str) -> bool:
    """Whether this may be a repository's id, or a .gguf file in one."""
    return _REPOSITORY.fullmatch(spec) is not None


def find(spec: str) -> Path:
    """The cached snapshot of a repository, or a .gguf file in it.

    Args:
        spec: `org/name`, or `org/name/file.gguf`.

    Raises:
        UserError: it is not in the cache, or only in part; the message says how to fetch it.
    """
    found = _REPOSITORY.fullmatch(spec)
    if found is None:
        raise UserError(f"{spec}: not the id of a Hugging Face repository, which is org/name")
    repository, file = found["id"], (found["file"] or "").removeprefix("/")
    cache = _cache()
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = _snapshot(folder)
    if snapshot is None:
        there = [path.name[len("models--") :].replace("--", "/", 1) for path in cache.glob("models--*/")]
        raise UserError(
            f"{spec}: no such file or directory, and not in the Hugging Face cache, {cache}; "
            f"{listing(repository, there)}; hf download {repository} fetches it"
        )
    if missing := missing_shards(snapshot):
        raise UserError(
            f"{spec}: only in part in the Hugging Face cache, without {', '.join(missing)}; "
            f"hf download {repository} fetches the rest"
        )
    if file and not (snapshot / file).is_file():
        raise UserError(f"{spec}: {file} is not in the Hugging Face cache; hf download {repository} {file} fetches it")
    return snapshot / file


def _cache() -> Path:
    try:
        from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415  # comes with transformers, an extra
    except ImportError as error:
        raise UserError('the Hugging Face cache needs huggingface_hub: pip install "tokenroof[torch]"') from error
    return Path(HF_HUB_CACHE)


def _snapshot(folder: Path) -> Path | None:
    """Of the main branch; else, where a commit was fetched by its hash, the only one there is."""
    reference = folder / "refs" / "main"
    if reference.is_file():
        snapshot = folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
        return snapshot if snapshot.is_dir() else None
    snapshots = list(folder.glob("snapshots/*/"))
    return snapshots[0] if len(snapshots) == 1 else None


def download(repository: str) -> Path:
    """Fetch a repository of safetensors into Hugging Face's cache, with a progress bar; goes on where it stopped.

    Returns:
        The snapshot's directory.

    Raises:
        UserError: offline (HF_HUB_OFFLINE), no such repository, or no access to it.
    """
    import huggingface_hub  # noqa: PLC0415  # an extra

    try:
        path = huggingface_hub.snapshot_download(repository, allow_patterns=_WANTED, ignore_patterns=_NOT_WANTED)
    except Exception as error:  # errors of its HTTP client, which is another one in each version
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(f"{repository}: cannot be fetched from Hugging Face: {line}") from error
    return Path(path)
