"""Where a gallery's vectors are: an engine's address, and what sets the gallery apart from others on a server."""

import re
import secrets
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from holdfast.errors import HoldfastError

EMBEDDED = "embedded"
_PLAIN = re.compile(r"[a-z][a-z0-9_]{0,39}")
SECRETS = ("password", "sslpassword", "api_key", "api-key", "token")


@dataclass(frozen=True)
class Place:
    """url: ``embedded``, or a server's address without a password. namespace: begins the names of all that is kept
    there. shards, replicas: what a Qdrant cluster is asked to make of each collection."""

    url: str = EMBEDDED
    namespace: str = ""
    shards: int = 1
    replicas: int = 1

    @property
    def options(self) -> dict[str, Any]:
        """All but the address, as the catalogue keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "url"}


def new_place(
    url: str, *, namespace: str | None = None, shards: int | None = None, replicas: int | None = None
) -> Place:
    """A place for a gallery that is about to be kept there; a namespace is made up where none is given.

    Refused: a password in the address. It would be kept in the catalogue, shown by ``stats`` and by the system's list
    of processes; servers' clients take it from the environment or from a file.
    """
    if url.partition(":")[0] == EMBEDDED:
        if (namespace, shards, replicas) != (None, None, None):
            raise HoldfastError("namespace, shards and replicas are for engines on a server, not for the embedded one")
        return Place(url)
    _check_no_secret(url)
    for name, value in (("shards", shards), ("replicas", replicas)):
        if value is not None and not url.startswith("http"):
            raise HoldfastError(f"{name} are for a Qdrant cluster (http:// or https://)")
        if value is not None and value < 1:
            raise HoldfastError(f"{name} must be at least 1, got {value}")
    chosen = f"holdfast_{secrets.token_hex(6)}" if namespace is None else namespace
    return Place(url, plain_name(chosen), shards or 1, replicas or 1)


def plain_name(name: str) -> str:
    """A name that every server takes as it is, in a statement or in an address."""
    if not _PLAIN.fullmatch(name):
        raise HoldfastError(f"name {name!r}: use at most 40 small letters, digits and underscores, a letter first")
    return name


def _check_no_secret(url: str) -> None:
    scheme = url.partition(":")[0]
    try:
        parts = urlsplit(url)
        asked = {name.lower() for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
        secret = bool(parts.password) or bool(asked & set(SECRETS))
    except ValueError:
        raise HoldfastError(f"the address after {scheme}: cannot be read as a URL") from None
    if secret:
        instead = "QDRANT_API_KEY" if scheme.startswith("http") else "PGPASSWORD, PGPASSFILE or ~/.pgpass"
        raise HoldfastError(f"a password in the address {scheme}://... would be kept in plain sight; use {instead}")
