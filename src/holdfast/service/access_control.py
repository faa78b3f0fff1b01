"""Access control: tokens with read or write scope. Without tokens, only clients on this machine are served."""

import functools
import hashlib
import hmac
import ipaddress
import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from holdfast.core.errors import HoldfastError
from holdfast.service.refusals import RequestError

Scope = Literal["read", "write"]

SHORTEST_TOKEN = 16
TOKEN_VARIABLES: dict[Scope, str] = {"read": "HOLDFAST_READ_TOKEN", "write": "HOLDFAST_WRITE_TOKEN"}


class AccessControl:
    """Decides whether a request may be answered.

    tokens: the scope of each token, by the token's SHA-256. Write includes read. Empty: no token is needed.
    hosts: without tokens, further host names that requests may be addressed to, such as the name of a reverse proxy.
    """

    def __init__(self, tokens: Mapping[bytes, Scope], hosts: Collection[str] = ()) -> None:
        self._tokens = dict(tokens)
        self._hosts = frozenset(name.lower() for name in hosts)

    @property
    def has_tokens(self) -> bool:
        return bool(self._tokens)

    def scope(self, authorization: str | None) -> Scope | None:
        """The scope that an Authorization header gives; None if its token is missing or unknown."""
        if not self.has_tokens:
            return "write"
        given = _given_hash(authorization)
        if given is None:
            return None
        found: Scope | None = None
        for known, scope in self._tokens.items():  # compare with all tokens, each in constant time
            if hmac.compare_digest(known, given):
                found = scope
        return found

    def client(self, request: HTTPConnection) -> str:
        """Whose request it is, to be fair between clients: the token's owner, without tokens an address."""
        if self.has_tokens:
            return (_given_hash(request.headers.get("authorization")) or b"").hex()
        return "" if request.client is None else request.client.host

    def require(self, scope: Scope, authorization: str | None) -> None:
        """Refuse a request (401 or 403) if its Authorization header does not give this scope."""
        found = self.scope(authorization)
        if found is None:
            reason = "unknown token" if authorization else "a token is needed: Authorization: Bearer TOKEN"
            raise RequestError(401, reason, {"WWW-Authenticate": "Bearer"})
        if scope == "write" and found != "write":
            raise RequestError(403, "this token can only read; use a write token")

    def check_host_and_origin(self, hosts: Sequence[str], origins: Sequence[str]) -> None:
        """Refuse requests that name two hosts. Without tokens, also those of other sites' pages in a browser here.

        hosts: the ``Host`` headers. One names another host if a foreign name was resolved to this machine (DNS
            rebinding).
        origins: the ``Origin`` headers. One names another host or port if a page of another site sent the request.
        """
        if len(hosts) > 1 or len(origins) > 1:  # a proxy may have looked at another one than this service
            raise RequestError(400, "the request has two Host or two Origin headers")
        if self.has_tokens:
            return
        host, port = _host_and_port(f"//{hosts[0] if hosts else ''}")
        if host not in self._hosts and not is_loopback(host):
            raise RequestError(421, "the Host header names another host; a reverse proxy's name needs --allow-host")
        for name, own_port in map(_host_and_port, origins):
            # A proxy may pass on its name without its port.
            if name not in self._hosts and not (is_loopback(name) and own_port == port):
                raise RequestError(403, "the Origin header names another site")


def _given_hash(authorization: str | None) -> bytes | None:
    """SHA-256 of the token in an Authorization header; None if it has none."""
    kind, _, token = (authorization or "").partition(" ")
    if kind.lower() != "bearer":
        return None
    return hashlib.sha256(token.strip().encode("utf-8", "surrogateescape")).digest()


def read_tokens(file: Path | None, environment: Mapping[str, str] = os.environ) -> dict[bytes, Scope]:
    """The scope of each token, by the token's SHA-256.

    file: lines ``read TOKEN`` or ``write TOKEN``; # starts a comment. TOKEN may be ``sha256:`` and 64 hex digits.
    environment: variables, of which HOLDFAST_READ_TOKEN and HOLDFAST_WRITE_TOKEN are read.
    """
    found: dict[bytes, Scope] = {}
    for scope, name in TOKEN_VARIABLES.items():
        if token := environment.get(name, "").strip():
            found[_token_hash(token, name)] = scope
    if file is None:
        return found
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HoldfastError(f"{file}: the token file cannot be read ({type(error).__name__})") from None
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) != 2 or words[0] not in TOKEN_VARIABLES:
            raise HoldfastError(f"{file}, line {number}: expected 'read TOKEN' or 'write TOKEN'")
        found[_token_hash(words[1], f"{file}, line {number}")] = words[0]
    if not found:
        raise HoldfastError(f"{file}: no tokens in this file; add lines 'read TOKEN' or 'write TOKEN'")
    return found


def check_bind_address(host: str, access: AccessControl) -> None:
    """Without tokens, refuse to listen at an address that other machines can reach."""
    if not access.has_tokens and not is_loopback(host):
        raise HoldfastError(
            f"--host {host}: without tokens the service is for this machine only; pass --token-file, or use 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _token_hash(token: str, where: str) -> bytes:
    kind, separator, digits = token.partition(":")
    if separator and kind == "sha256":
        try:
            digest = bytes.fromhex(digits)
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise HoldfastError(f"{where}: sha256: must be followed by 64 hex digits")
        return digest
    if len(token) < SHORTEST_TOKEN:
        raise HoldfastError(f"{where}: a token must have at least {SHORTEST_TOKEN} characters")
    if not token.isascii():  # headers are not read as UTF-8
        raise HoldfastError(f"{where}: a token must be ASCII text")
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@functools.lru_cache(maxsize=64)
def _host_and_port(address: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(address)
        return (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", None
