"""Hugging Face's cache: `models--ORG--NAME/`, where `refs/main` names the commit and `snapshots/COMMIT/` has its files.

Nothing is fetched here: `hub_download` does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from harness.errors import UserError
from harness.models.gguf_parts import is_model, missing_parts, model_name, only_model_in
from harness.models.pickles import pickled_weights
from harness.models.safetensors_file import has_weights, missing_shards
from harness.models.stores.listing import listing

if TYPE_CHECKING:
    from collections.abc import Iterable

_SPEC = re.compile(r"(?P<id>\w[\w.-]*/[\w.-]+)(?:/(?P<file>.+\.gguf)|:(?P<format>[\w.-]+))?")


@dataclass(frozen=True)
class Wanted:
    """What a user asks a repository for.

    Attributes:
        spec: as it was written.
        repository: `org/name`.
        file: a .gguf file in it; "": whatever the repository holds.
        weight_format: a part of the .gguf file's name, as Q4_K_M; "": any.
    """

    spec: str
    repository: str
    file: str = ""
    weight_format: str = ""

    @property
    def names_gguf(self) -> bool:
        """Whether one GGUF model of the repository is meant, and nothing else will do."""
        return bool(self.file or self.weight_format)

    def gguf_of(self, names: Iterable[str]) -> list[str]:
        """The files of the one GGUF model that is wanted, its parts in order; none where it is not there.

        Args:
            names: of all files of the repository.

        Raises:
            UserError: several would do.
        """
        models: dict[str, list[str]] = {}
        for name in sorted(names):
            if is_model(path := PurePosixPath(name)):
                models.setdefault(str(path.with_name(model_name(path))), []).append(name)
        wanted = [model for model, files in models.items() if self._means(model, files)]
        if len(wanted) > 1:
            there = ", ".join(f"{model}.gguf" for model in wanted)
            raise UserError(
                f"{self.spec}: {self.repository} holds {len(wanted)} GGUF models: {there}; name one, as "
                f"{self.repository}/FILE.gguf or {self.repository}:Q4_K_M"
            )
        return models[wanted[0]] if wanted else []

    def _means(self, model: str, files: list[str]) -> bool:
        if self.file:
            return self.file in files
        words = re.escape(self.weight_format)
        return re.search(rf"(?i)(^|[-._/]){words}$", model) is not None if words else True


def wanted(spec: str) -> Wanted | None:
    """What a word asks for, if it may mean a repository: `org/name`, `org/name/FILE.gguf` or `org/name:Q4_K_M`."""
    found = _SPEC.fullmatch(spec)
    return None if found is None else Wanted(spec, found["id"], found["file"] or "", found["format"] or "")


def find(asked: Wanted) -> Path:
    """The cached snapshot of a repository, or a .gguf file in it.

    Raises:
        UserError: it is not in the cache, or only in part; the message says how to fetch it.
    """
    repository, cache = asked.repository, cache_folder()
    snapshot = _snapshot(folder_of(repository))
    if snapshot is None:
        there = [path.name[len("models--") :].replace("--", "/", 1) for path in cache.glob("models--*/")]
        raise UserError(
            f"{asked.spec}: no such file or directory, and not in the Hugging Face cache, {cache}; "
            f"{listing(repository, there)}; {_how(repository)} fetches it"
        )
    if asked.names_gguf:
        names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*.gguf")]
        if not (files := asked.gguf_of(names)):
            near = listing(asked.file or asked.weight_format, names)
            raise UserError(
                f"{asked.spec}: no such file in the Hugging Face cache; {near}; {_how(repository)} fetches it"
            )
        return snapshot / files[0]
    if missing := missing_shards(snapshot):
        raise UserError(
            f"{asked.spec}: only in part in the Hugging Face cache, without {', '.join(missing)}; "
            f"{_how(repository)} fetches the rest"
        )
    return snapshot


def holds(asked: Wanted, *, allow_pickle: bool = False) -> bool:
    """Whether the cache has weights for what is asked, all of them as far as names tell."""
    try:
        place = find(asked)
        if place.is_dir() and (has_weights(place) or (allow_pickle and pickled_weights(place))):
            return True
        model = place if place.is_file() else only_model_in(place, asked.spec)
    except UserError:
        return False
    return model is not None and not missing_parts(model)


def _how(repository: str) -> str:
    return f"tokenroof run --download, or hf download {repository},"


def cache_folder() -> Path:
    """Of Hugging Face's cache, which may not exist.

    Raises:
        UserError: the library is not installed.
    """
    try:
        from huggingface_hub.constants import HF_HUB_CACHE  # noqa: PLC0415  # comes with transformers, an extra
    except ImportError as error:
        raise UserError('the Hugging Face cache needs huggingface_hub: pip install "tokenroof[torch]"') from error
    return Path(HF_HUB_CACHE)


def folder_of(repository: str) -> Path:
    """Where the cache keeps a repository; it may not exist."""
    return cache_folder() / f"models--{repository.replace('/', '--')}"


def _snapshot(folder: Path) -> Path | None:
    """Of the main branch; else, where a commit was fetched by its hash, the only one there is."""
    reference = folder / "refs" / "main"
    if reference.is_file():
        snapshot = folder / "snapshots" / reference.read_text(encoding="utf-8").strip()
        return snapshot if snapshot.is_dir() else None
    snapshots = list(folder.glob("snapshots/*/"))
    return snapshots[0] if len(snapshots) == 1 else None
