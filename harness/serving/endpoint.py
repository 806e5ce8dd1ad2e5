"""The server's address and key: understood once, and kept out of every text that may be stored or shown."""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from harness.errors import UserError
from harness.tiers.endpoints import is_loopback

_PORTS = {"http": 80, "https": 443}
_SECRET_CHARACTERS = 8  # a shorter secret may be a part of any word


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens.

    Attributes:
        base_url: without user and password.
        api_key: None: none is sent.
        auth: user and password that the URL held.
    """

    base_url: str
    api_key: str | None = field(default=None, repr=False)
    auth: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def is_local(self) -> bool:
        """Whether it is this machine, and reached from nowhere else."""
        return is_loopback(_host_port(self.base_url))

    @property
    def shown(self) -> str:
        """As a row may hold it: another machine's name or address is none of its reader's business."""
        return self.base_url if self.is_local else self.without_secrets(self.base_url)

    def without_secrets(self, text: str) -> str:
        """A text, which may be a server's own, without key, password, and the name of another machine."""
        for secret in self._secrets():
            if len(secret) < _SECRET_CHARACTERS:  # "none" is a key that many give
                text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", "…", text)
            else:
                text = text.replace(secret, "…")
        host = urlsplit(self.base_url).hostname or ""
        return text if self.is_local else re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "HOST", text)

    def _secrets(self) -> set[str]:
        """In every spelling that a server may repeat."""
        login = b64encode(":".join(self.auth).encode()).decode() if self.auth else None
        secrets = filter(None, (self.api_key, self.auth and self.auth[1], login))
        return {spelling for secret in secrets for spelling in (secret, quote(secret, safe=""))}


def endpoint(base_url: str, api_key: str | None) -> Endpoint:
    """Understand --base-url and --api-key.

    Raises:
        UserError: the URL is none, or the key holds what no header can.
    """
    try:
        parts = urlsplit(base_url.strip())
        port = parts.port
    except ValueError as error:
        raise UserError(f"--base-url: {error}; write it as http://127.0.0.1:8080/v1") from error
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UserError("--base-url is no http:// or https:// address; write it as http://127.0.0.1:8080/v1")
    if parts.query or parts.fragment:
        raise UserError(
            "--base-url holds a ? or #, which paths cannot be added to; write it as http://127.0.0.1:8080/v1"
        )
    if api_key and (not api_key.isascii() or not api_key.isprintable()):
        raise UserError("--api-key holds a character that no HTTP header can")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    place = host if port is None else f"{host}:{port}"
    auth = (unquote(parts.username), unquote(parts.password or "")) if parts.username else None
    return Endpoint(urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", "")), api_key or None, auth)


def _host_port(base_url: str) -> str:
    parts = urlsplit(base_url)
    return f"{parts.hostname}:{parts.port or _PORTS[parts.scheme]}"
