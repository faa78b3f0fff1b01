"""Who may ask: tokens with read or write scope, and, where there are none, only pages and programs of this machine."""

import hashlib
import hmac
import ipaddress
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from holdfast.errors import HoldfastError
from holdfast.service.errors import RefusedError

Scope = Literal["read", "write"]

SHORTEST_TOKEN = 16
ENVIRONMENT: dict[Scope, str] = {"read": "HOLDFAST_READ_TOKEN", "write": "HOLDFAST_WRITE_TOKEN"}
_LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


class Access:
    """tokens: SHA-256 of each token and its scope; write includes read. hosts: further names that a request may be
    addressed to where there are no tokens, such as a reverse proxy's."""

    def __init__(self, tokens: Mapping[bytes, Scope], hosts: Collection[str] = ()) -> None:
        self._tokens = dict(tokens)
        self._hosts = _LOOPBACK_NAMES | {name.lower() for name in hosts}

    @property
    def open(self) -> bool:
        """Whether there are no tokens, so that whoever reaches the service may do everything."""
        return not self._tokens

    def scope(self, authorization: str | None) -> Scope | None:
        """What the bearer of this header may do; None is nothing."""
        if self.open:
            return "write"
        kind, _, token = (authorization or "").partition(" ")
        if kind.lower() != "bearer":
            return None
        given = hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found: Scope | None = None
        for known, scope in self._tokens.items():  # all of them, each in constant time
            if hmac.compare_digest(known, given):
                found = scope
        return found

    def demand(self, wanted: Scope, authorization: str | None) -> None:
        found = self.scope(authorization)
        if found is None:
            what = "unknown token" if authorization else "a token is needed: Authorization: Bearer TOKEN"
            raise RefusedError(401, what, {"WWW-Authenticate": "Bearer"})
        if wanted == "write" and found != "write":
            raise RefusedError(403, "this token may read only")

    def check_address(self, host: str | None, origin: str | None) -> None:
        """Refuse what a foreign page makes a browser send here: without tokens nothing else would stop it.

        A name that was made to point at this machine (DNS rebinding) shows in ``Host``, another page in ``Origin``.
        """
        if not self.open:
            return
        if _host_of(f"//{host or ''}") not in self._hosts:
            raise RefusedError(421, "addressed to a host name that this service does not have; see --allow-host")
        if origin is not None and _host_of(origin) not in self._hosts:
            raise RefusedError(403, "sent by a page of another site")


def read_tokens(file: Path | None, environment: Mapping[str, str] = os.environ) -> dict[bytes, Scope]:
    """Tokens of a file (lines ``read TOKEN`` or ``write TOKEN``, # starts a comment) and of the environment.

    Instead of a token a line may hold ``sha256:`` and the 64 hex digits of its hash.
    """
    found: dict[bytes, Scope] = {}
    for scope, name in ENVIRONMENT.items():
        if environment.get(name):
            found[_hash(environment[name], name)] = scope
    if file is None:
        return found
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{file}: no readable token file ({type(error).__name__})") from None
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in ENVIRONMENT:
            raise HoldfastError(f"{file}, line {number}: wanted 'read TOKEN' or 'write TOKEN'")
        found[_hash(words[1], f"{file}, line {number}")] = words[0]
    if not found:
        raise HoldfastError(f"{file}: no tokens in it")
    return found


def check_binding(host: str, access: Access) -> None:
    """Without tokens only this machine may reach the service."""
    if access.open and not is_loopback(host):
        raise HoldfastError(
            f"--host {host}: without tokens the service is for this machine only; give --token-file, or 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _hash(token: str, where: str) -> bytes:
    kind, sign, digits = token.partition(":")
    if sign and kind == "sha256":
        try:
            known = bytes.fromhex(digits)
        except ValueError:
            known = b""
        if len(known) != 32:
            raise HoldfastError(f"{where}: sha256: is followed by 64 hex digits")
        return known
    if len(token) < SHORTEST_TOKEN:
        raise HoldfastError(f"{where}: a token has at least {SHORTEST_TOKEN} characters")
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _host_of(address: str) -> str:
    try:
        return (urlsplit(address).hostname or "").lower()
    except ValueError:
        return ""
