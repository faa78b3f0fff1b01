"""Refused requests, what is wrong with a body in plain words, and the service's log for all that clients do not read.

Without fastapi: worker processes import it, and they should start fast.
"""

import logging
from typing import Any

LOG = logging.getLogger("holdfast.service")
INTERNAL_ERROR = "internal error of the service; see its log"


class RequestError(Exception):
    """A request that is refused.

    status: the HTTP status of the answer.
    reason: one line for the client.
    headers: further headers of the answer.
    """

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers


def validation_reason(errors: list[Any]) -> str:
    """What is wrong with the first field that pydantic names, as one sentence. The value is not repeated."""
    where = _field(errors[0])
    kinds = [_plain(error["msg"]) for error in errors if _field(error) == where]
    more = len({_field(error) for error in errors}) - 1
    # For a value that may have several types, pydantic has one error for each of them.
    *others, last = dict.fromkeys(kind.removeprefix(_MUST_BE) for kind in kinds)
    reason = f"{', '.join(others)} or {last}" if others else last
    if kinds[0].startswith(_MUST_BE):
        reason = _MUST_BE + reason
    rest = f" (and {more} more)" if more else ""
    return f"{where}: {reason}{rest}" if where else f"the request {reason}{rest}"


_MUST_BE = "must be "


def _field(error: Any) -> str:
    """The name of the field, without the types that pydantic tried and the parts of the request."""
    path = [str(part) for part in error.get("loc", ()) if part not in ("body", "query")]
    tried = ("bool", "int", "float", "str", "constrained-int", "constrained-float", "constrained-str")
    return ".".join(part for part in path if "[" not in part and part not in tried)


_PLAIN = {
    " after validation": "",
    "Input should be": "must be",
    "a valid ": "a ",
    "a boolean": "true or false",
    "a integer": "a whole number",
    "string": "text",
    "a text": "text",
    "a dictionary": "an object",
    "a array": "a list",
    "Extra inputs are not permitted": "is not a known field",
    "Field required": "is missing",
}
"""Words of pydantic, replaced in this order."""


def _plain(message: str) -> str:
    """One of pydantic's messages in plain words."""
    if message.startswith("Invalid JSON"):
        return f"is not valid JSON{message.removeprefix('Invalid JSON')}"
    words = message.partition(", unable to")[0]
    for given, plain in _PLAIN.items():
        words = words.replace(given, plain)
    return words[0].lower() + words[1:]
