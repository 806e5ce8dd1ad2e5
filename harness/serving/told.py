"""What a server says of itself: its models, its version, its room."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any

from backends.openai.dialects import LLAMA_SERVER, OLLAMA, UNKNOWN, recognise
from backends.openai.errors import BrokenOffError, ServerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from backends.openai.client import Client
    from backends.openai.dialects import Dialect

REFUSED_FOR_ALL = frozenset({401, 403})
"""Status of an answer to whatever is asked without the right key."""

_MOST_NAMES = 8
_MOST = 2**53  # that a cell of a row can hold
_MLX_OWN = "default_model"  # mlx_lm.server's name for the model that it was started with, which its list lacks


@dataclass(frozen=True)
class Told:
    """What a server says of itself; None: it does not.

    Attributes:
        version: its own, or its build's.
        context: tokens that one stream may hold.
        n_params, weight_bytes, vocab_size: of the model.
        model_file: name of the file that it holds.
        slots: streams that it serves at once.
    """

    version: str | None = None
    context: int | None = None
    n_params: int | None = None
    weight_bytes: int | None = None
    vocab_size: int | None = None
    model_file: str | None = None
    slots: int | None = None


async def models_of(client: Client) -> tuple[list[dict[str, Any]], Mapping[str, str]]:
    """The models that a server lists, none where it has no list, and the headers of an answer of it.

    Raises:
        ServerError: it does not answer, or wants a key.
    """
    try:
        document, headers = await client.get("models")
    except ServerError as error:
        # mlx_lm.server drops the connection where there is no Hub cache to list.
        if not isinstance(error, BrokenOffError) and (error.status is None or error.status in REFUSED_FOR_ALL):
            raise
        return [], await _headers(client)
    listed = document.get("data")
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else [], headers


async def dialect_of(client: Client, models: Sequence[Mapping[str, Any]], headers: Mapping[str, str]) -> Dialect:
    """The dialect of a server.

    Args:
        client: to it.
        models: that it lists.
        headers: of that answer.
    """
    dialect = recognise(models, headers)
    if dialect is UNKNOWN and OLLAMA.version and await _version(client, OLLAMA.version):
        return OLLAMA  # whose models may all be owned by the user who made them
    return dialect


def served_name(models: Sequence[Mapping[str, Any]], asked: str) -> str:
    """The name under which a server has the model: that name, or a path that ends in it.

    Raises:
        ServerError: it has none of the name; the message lists what it has.
    """
    names = [str(each["id"]) for each in models if each.get("id")]
    if not names or asked in {*names, _MLX_OWN}:
        return asked
    ends = [name for name in names if _file(name) == _file(asked) or _stem(name) == _file(asked)]
    if len(ends) == 1:
        return ends[0]
    listed = ", ".join(_file(name) if _is_path(name) else name for name in names[:_MOST_NAMES])
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    raise ServerError(
        f"the server has no model {_file(asked) if _is_path(asked) else asked!r}; it serves {listed}{more} "
        "(-m NAME, or -m MODEL --artifact openai=NAME where the names differ)"
    )


async def told_by(client: Client, dialect: Dialect, model: Mapping[str, Any]) -> Told:
    """What the server says, where this dialect says it.

    Args:
        client: to it.
        dialect: its own.
        model: its entry in the list of models.
    """
    meta = model.get("meta")
    meta = meta if isinstance(meta, dict) else {}
    told: dict[str, Any] = {
        "context": _whole(model.get("max_model_len")),
        "n_params": _whole(meta.get("n_params")),
        "weight_bytes": _whole(meta.get("size")),
        "vocab_size": _whole(meta.get("n_vocab")),
    }
    if dialect is LLAMA_SERVER:
        props = await _asked(client, "props")
        defaults = props.get("default_generation_settings")
        told |= {
            "version": _text(props.get("build_info")),
            "context": _whole(defaults.get("n_ctx")) if isinstance(defaults, dict) else None,
            "model_file": _file(str(props["model_path"])) if props.get("model_path") else None,
            "slots": _whole(props.get("total_slots")),
        }
    elif dialect.version:
        told["version"] = await _version(client, dialect.version)
    return Told(**told)


async def _version(client: Client, place: tuple[str, str]) -> str | None:
    """What a document at a path says under a key."""
    path, key = place
    return _text((await _asked(client, path)).get(key))


async def _headers(client: Client) -> Mapping[str, str]:
    """Of another answer, which may tell whose it is."""
    try:
        return (await client.get("health", from_root=True))[1]
    except ServerError:
        return {}


async def _asked(client: Client, path: str) -> dict[str, Any]:
    """A document that is good to have."""
    try:
        return (await client.get(path, from_root=True))[0]
    except ServerError:
        return {}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MOST else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_path(name: str) -> bool:
    return PurePosixPath(name).is_absolute() or PureWindowsPath(name).is_absolute()


def _file(name: str) -> str:
    return PureWindowsPath(name).name or name


def _stem(name: str) -> str:
    return _file(name).removesuffix(".gguf")
