"""Error answers: every error has the same JSON form, ``{"error": {"status": ..., "reason": ...}}``."""

import json
import os
from http import HTTPStatus

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from holdfast.core.errors import HoldfastError, UnavailableError
from holdfast.service.refusals import INTERNAL_ERROR, LOG, RequestError, validation_reason

CLIENT_GONE = 499
"""The status that is counted if the client closed the connection before the answer started."""
PRIVATE_FOLDER = "holdfast.private_folder"
"""Key in a request's scope: the gallery's folder, which no answer may name. Not set for the owner's own requests."""

_LONGEST_REASON = 400


def error_response(status: int, reason: str, headers: dict[str, str] | None = None) -> Response:
    """An error answer. The reason is shortened to one line of 400 characters."""
    line = " ".join(reason.split())
    if len(line) > _LONGEST_REASON:
        line = f"{line[: _LONGEST_REASON - 1]}…"
    body = json.dumps({"error": {"status": status, "reason": line}})  # ASCII: lone surrogates stay escaped
    return Response(body, status, headers, media_type="application/json")


def response_for(error: Exception, request: Request) -> Response:
    """The answer to a request that failed with this error."""
    if isinstance(error, RequestError):
        return error_response(error.status, error.reason, error.headers)
    if isinstance(error, HoldfastError):
        status, reason = public_reason(error, request)
        return error_response(status, reason, {"Retry-After": "5"} if status == 503 else None)
    if isinstance(error, HTTPException):
        phrase = HTTPStatus(error.status_code).phrase.lower()
        reason = f"{phrase}: {request.method} {request.url.path}" if error.status_code in (404, 405) else phrase
        return error_response(error.status_code, reason, dict(error.headers or {}))
    if isinstance(error, RequestValidationError):
        return error_response(422, validation_reason(list(error.errors())))
    if isinstance(error, ClientDisconnect):
        return Response(status_code=CLIENT_GONE)  # nobody reads it; without it the log would have a traceback
    return error_response(500, INTERNAL_ERROR)  # whoever calls this logs the error


def public_reason(error: HoldfastError, request: Request) -> tuple[int, str]:
    """Status and reason of an answer. What names the server, the device or a file of the gallery is only logged."""
    if isinstance(error, UnavailableError):
        LOG.error("%s", error)
        return 503, "the gallery's store cannot be reached or written, or its GPU has no free memory; try again"
    text, folder = str(error), request.scope.get(PRIVATE_FOLDER)
    if folder is not None and (text.startswith(f"{folder}{os.sep}") or str(folder.absolute()) in text):
        LOG.error("%s", error)
        return 500, INTERNAL_ERROR
    return 422, text


def install_error_handlers(app: FastAPI) -> None:
    """Answer every exception in the form of this module."""

    async def handle(request: Request, error: Exception) -> Response:
        return response_for(error, request)  # starlette raises an unknown error again, and uvicorn logs it

    for kind in (RequestError, HoldfastError, HTTPException, RequestValidationError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, handle)
