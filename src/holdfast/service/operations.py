"""Writes that are done once: idempotency keys, and operations that outlast their request.

A write is answered in one of three ways. 200: done. 503: not done, and it will not be done. 504: it has begun and is
not finished; ``GET /v1/operation`` tells what became of it.
"""

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery, OpenGallery
from holdfast.service.error_answers import public_reason
from holdfast.service.refusals import RequestError

KEY_HEADER, OPERATION_HEADER, REPLAYED_HEADER = "Idempotency-Key", "Operation-Id", "Idempotent-Replayed"
_KEY = re.compile(r"[!-~]{1,128}", re.ASCII)
_MOST_REMEMBERED = 10_000

Answer = dict[str, Any]


class Operation:
    """One write.

    id: the client's idempotency key, or a random name.
    keyed: whether the client gave the key; its answer is then stored with the write.
    request: hash of the request; empty without a key.
    """

    def __init__(self, id: str, keyed: bool, request: str) -> None:
        self.id, self.keyed, self.request = id, keyed, request
        self.outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        # Nobody may ever ask for the outcome; asyncio would log an error that was not looked at.
        self.outcome.add_done_callback(lambda outcome: outcome.cancelled() or outcome.exception())

    def end(self, write: "asyncio.Future[Answer]") -> None:
        """Take over the outcome of a write that has ended."""
        if self.outcome.done():
            return
        if write.cancelled():
            self.outcome.cancel()
        elif error := write.exception():
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(write.result())


class UnfinishedWriteError(Exception):
    """A write that has begun and takes longer than a request may; ``write`` is its future result."""

    def __init__(self, write: "asyncio.Future[Answer]") -> None:
        super().__init__("unfinished")
        self.write = write


class Operations:
    """The writes of one service. Use it in one event loop.

    gallery: stores the answers of writes with an idempotency key, for 24 hours that it is open.
    seconds: how long a request with the key of a write that runs waits for it.
    """

    def __init__(self, gallery: OpenGallery, seconds: float) -> None:
        self._gallery, self._seconds = gallery, seconds
        self._known: OrderedDict[str, Operation] = OrderedDict()

    async def run(
        self, request: Request, digest: str, work: Callable[[Operation], Awaitable[Answer]]
    ) -> tuple[Answer, bool]:
        """The answer of a write, and whether it was done by an earlier request with the same key.

        digest: ``request_digest`` of the request. The body itself is not held while the write is done.
        work: does the write; it is not called if an earlier request did.
        """
        key = request.headers.get(KEY_HEADER)
        if key is not None:
            if not _KEY.fullmatch(key):
                raise RequestError(422, f"{KEY_HEADER}: 1 to 128 visible ASCII characters")
            while (earlier := await self._earlier(key, digest)) is None and key in self._known:
                pass  # another request with this key began meanwhile
            if earlier is not None:
                return earlier, True
        operation = Operation(key or secrets.token_hex(16), key is not None, digest)
        self._known[operation.id] = operation
        try:
            answer = await work(operation)
        except UnfinishedWriteError as unfinished:
            unfinished.write.add_done_callback(operation.end)
            raise self._unfinished(operation) from None
        except BaseException as error:
            self._known.pop(operation.id, None)
            if not operation.outcome.done():
                operation.outcome.set_exception(error if isinstance(error, Exception) else RuntimeError("cancelled"))
            raise
        self._known.pop(operation.id, None)
        operation.outcome.set_result(answer)
        return answer, False

    async def state(self, id: str, request: Request) -> Answer:
        """What became of an operation, as JSON; 404 if nothing is known of it, so that it was not done.

        request: the request that asks. It decides what a reason may name, as in ``errors.public_reason``.
        """
        operation = self._known.get(id)
        if operation is None:
            receipt = await asyncio.to_thread(self._receipt, id)
            if receipt is None:
                raise RequestError(404, "no such operation: it was not done, or longer ago than answers are kept")
            return {"id": id, "state": "done", "answer": receipt.answer}
        if not operation.outcome.done():
            return {"id": id, "state": "running"}
        error = None if operation.outcome.cancelled() else operation.outcome.exception()
        if operation.outcome.cancelled() or error is not None:
            reason = "the service could not do it"
            if isinstance(error, HoldfastError):
                _, reason = public_reason(error, request)
            return {"id": id, "state": "not done", "reason": reason}
        return {"id": id, "state": "done", "answer": operation.outcome.result()}

    async def _earlier(self, key: str, digest: str) -> Answer | None:
        """The answer of an earlier request with this key; None if there was none, or if it was not done."""
        operation = self._known.get(key)
        if operation is not None:
            _check_same(operation.request, digest)
            try:
                async with asyncio.timeout(self._seconds):
                    return await asyncio.shield(operation.outcome)
            except TimeoutError:
                raise self._unfinished(operation) from None
            except (HoldfastError, RequestError, RuntimeError, asyncio.CancelledError):
                if not operation.outcome.done():  # this request was cancelled, not the operation
                    raise
                self._known.pop(key, None)  # not done: this request does it
        receipt = await asyncio.to_thread(self._receipt, key)
        if receipt is None:
            return None
        _check_same(receipt.request, digest)
        return receipt.answer

    def _receipt(self, key: str) -> Any:
        return self._gallery.receipt(key) if isinstance(self._gallery, Gallery) else None

    def _unfinished(self, operation: Operation) -> RequestError:
        while len(self._known) > _MOST_REMEMBERED:
            self._known.popitem(last=False)
        reason = f"the write has begun and is not finished; ask GET /v1/operation?id={operation.id}"
        return RequestError(504, reason, {OPERATION_HEADER: operation.id})


def _check_same(known: str, digest: str) -> None:
    if known != digest:
        raise RequestError(422, f"{KEY_HEADER}: was used for another request; use a new key for each write")


async def request_digest(request: Request, body: bytes) -> str:
    """A hash of the request, if it has an idempotency key; else an empty text."""
    if KEY_HEADER not in request.headers:
        return ""
    digest = hashlib.sha256(
        f"{request.method} {request.url.path}?{request.url.query}\n".encode("utf-8", "surrogateescape")
    )
    await asyncio.to_thread(digest.update, body)
    return digest.hexdigest()
