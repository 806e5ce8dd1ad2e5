"""Fetching from Hugging Face into its cache, for whoever asks for it (--download)."""

from __future__ import annotations

import glob
import shutil
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from harness.errors import UserError
from harness.models.gguf_parts import is_model
from harness.models.hf_config import BESIDE_WEIGHTS
from harness.models.pickles import ALLOW
from harness.models.safetensors_file import has_weights
from harness.models.stores import hub
from harness.models.stores.listing import listing
from results.amounts import size

if TYPE_CHECKING:
    from pathlib import Path

_SAFETENSORS = "*.safetensors"
_PICKLES = "pytorch_model*.bin"  # only where the user allows it, and where there is nothing better
_NOT_WANTED = ("*/*", "consolidated*")  # the same weights once more, for another program


def download(asked: hub.Wanted, *, allow_pickle: bool = False) -> Path:
    """Have the cache hold what is asked, with a progress bar; files that are there already are not fetched again.

    Args:
        asked: safetensors with all that belongs to them, or one GGUF model where it asks for one or there is no other.
        allow_pickle: pickled weights, where there is neither.

    Returns:
        As `hub.find`.

    Raises:
        UserError: offline, no such repository or file in it, no access to it, too little room, or a broken connection.
    """
    if not (hub.holds(asked, allow_pickle=allow_pickle) and _is_whole(asked)):
        sizes = _sizes(asked)
        files = _files(asked, list(sizes), allow_pickle=allow_pickle)
        _check_room(asked, {name: sizes[name] for name in files})
        _fetch(asked, files)
    return hub.find(asked)


def _is_whole(asked: hub.Wanted) -> bool:
    """Whether nothing is missing of a model directory, as far as the library can tell without asking."""
    import huggingface_hub  # noqa: PLC0415  # an extra

    if hub.find(asked).is_file():
        return True
    weights = _SAFETENSORS if has_weights(hub.find(asked)) else _PICKLES
    try:
        huggingface_hub.snapshot_download(
            asked.repository,
            local_files_only=True,
            allow_patterns=[weights, *BESIDE_WEIGHTS],
            ignore_patterns=[*_NOT_WANTED],
        )
    except OSError:  # what it lacks
        return False
    return True


def _sizes(asked: hub.Wanted) -> dict[str, int]:
    """Bytes of each file of the repository."""
    import huggingface_hub  # noqa: PLC0415  # an extra

    if huggingface_hub.constants.HF_HUB_OFFLINE:
        raise UserError(f"{asked.spec}: not in the Hugging Face cache, and HF_HUB_OFFLINE forbids to fetch it")
    try:
        info = huggingface_hub.HfApi().model_info(asked.repository, files_metadata=True)
    except Exception as error:  # errors of its HTTP client, which is another one in each version
        raise _told(asked, error) from error
    return {each.rfilename: each.size or 0 for each in info.siblings or ()}


def _files(asked: hub.Wanted, names: list[str], *, allow_pickle: bool) -> list[str]:
    """Of a repository's files those to fetch: safetensors before GGUF, and pickles last."""
    if not asked.names_gguf and (files := _directory(names, _SAFETENSORS)):
        return files
    if files := asked.gguf_of(names):
        return files
    if not asked.names_gguf and (files := _directory(names, _PICKLES)):
        if allow_pickle:
            return files
        raise UserError(
            f"{asked.spec}: its weights are in pickle files, which may run any code while they are read; "
            f"tokenroof run --download {ALLOW} takes that risk"
        )
    there = [name for name in names if is_model(PurePosixPath(name)) or name.endswith(".safetensors")]
    near = listing(asked.file or asked.weight_format or asked.repository, there)
    raise UserError(f"{asked.spec}: no such model in {asked.repository} on the Hub; {near}")


def _directory(names: list[str], weights: str) -> list[str]:
    """A model directory's files, whose weights have such names; none where there are no such weights."""
    wanted = [name for name in names if _matches(name, (weights, *BESIDE_WEIGHTS)) and not _matches(name, _NOT_WANTED)]
    return wanted if any(fnmatch(name, weights) for name in wanted) else []


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


def _check_room(asked: hub.Wanted, sizes: dict[str, int]) -> None:
    """The cache's disk must hold what is not there yet."""
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415  # an extra

    needed = sum(
        size for name, size in sizes.items() if not isinstance(try_to_load_from_cache(asked.repository, name), str)
    )
    folder = hub.cache_folder()
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise UserError(
            f"{asked.spec}: {size(needed)} are to be fetched, and {folder} has {size(free)} free; "
            "HF_HOME names another disk"
        )


def _fetch(asked: hub.Wanted, files: list[str]) -> None:
    import huggingface_hub  # noqa: PLC0415  # an extra

    try:
        huggingface_hub.snapshot_download(asked.repository, allow_patterns=[glob.escape(name) for name in files])
    except Exception as error:  # as above
        raise _told(asked, error) from error


def _told(asked: hub.Wanted, error: Exception) -> UserError:
    """One line for people; access is what they can mend."""
    from huggingface_hub import constants, errors  # noqa: PLC0415  # an extra

    causes: list[Any] = [error, error.__cause__]
    page = f"{constants.ENDPOINT}/{asked.repository}"
    if any(isinstance(cause, errors.GatedRepoError) for cause in causes):
        return UserError(f"{asked.spec}: its owners grant access: ask for it at {page}, then hf auth login")
    if any(isinstance(cause, errors.RepositoryNotFoundError) for cause in causes):
        return UserError(f"{asked.spec}: no such repository at {page}, or a private one, which needs hf auth login")
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return UserError(f"{asked.spec}: cannot be fetched from Hugging Face: {line}; the same command goes on")
