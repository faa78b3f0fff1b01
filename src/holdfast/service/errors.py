"""Errors over HTTP: every answer that is no success has one shape and one line that says why.

A request that is turned down, and where the service writes down what went wrong on its own side.
"""

import json
import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from holdfast.errors import HoldfastError, UnavailableError

_LONGEST_REASON = 400
_LATER = {"Retry-After": "5"}


def error_body(status: int, reason: str) -> bytes:
    line = " ".join(reason.split())
    if len(line) > _LONGEST_REASON:
        line = f"{line[: _LONGEST_REASON - 1]}…"
    return json.dumps({"error": {"status": status, "reason": line}}).encode()  # ASCII: broken Unicode stays escaped


def error_response(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    return Response(error_body(status, reason), status, headers, media_type="application/json")


def validation_reason(errors: list[Any]) -> str:
    """The first thing wrong with a body or a query, by name; what was sent is not repeated."""
    first = errors[0]
    # Of a value that may be of several kinds, pydantic also names the kind that it tried.
    path = [str(part) for part in first.get("loc", ()) if part not in ("body", "query")]
    where = ".".join(part for part in path if "[" not in part and part not in ("bool", "int", "float", "str"))
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return f"{where}: {first['msg']}{more}" if where else f"{first['msg']}{more}"


def handle_errors(app: FastAPI) -> None:
    """Install the one shape for everything that can be raised."""

    async def refusal(request: Request, error: Any) -> Response:
        return error_response(error.status, error.reason, error.headers)

    async def holdfast_error(request: Request, error: Any) -> Response:
        return error_response(422, str(error))

    async def unavailable(request: Request, error: Any) -> Response:
        LOG.error("%s", error)  # it names the server or the device, which is not for everybody who asks
        reason = "the gallery's store cannot be reached or written, or its GPU has no free memory; try again"
        return error_response(503, reason, _LATER)

    async def http(request: Request, error: Any) -> Response:
        known = HTTPStatus(error.status_code).phrase.lower()
        reason = f"{known}: {request.method} {request.url.path}" if error.status_code in (404, 405) else known
        return error_response(error.status_code, reason, dict(error.headers or {}))

    async def validation(request: Request, error: Any) -> Response:
        return error_response(422, validation_reason(list(error.errors())))

    async def defect(request: Request, error: Any) -> Response:
        return error_response(500, "a defect of the service; its log says more")  # and the error is raised again

    app.add_exception_handler(RefusedError, refusal)
    app.add_exception_handler(HoldfastError, holdfast_error)
    app.add_exception_handler(UnavailableError, unavailable)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(Exception, defect)


LOG = logging.getLogger("holdfast.service")


class RefusedError(Exception):
    """A request that is turned down: with which status, and why."""

    def __init__(self, status: int, reason: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status, self.reason, self.headers = status, reason, headers
