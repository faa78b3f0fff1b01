"""Calls in threads with one time limit for all, and the searches that are answered without the router."""

import asyncio
import logging
import threading

import pytest
from service_inputs import metric_values

from holdfast.service.call_threads import CallThreads
from holdfast.service.deadlines import Deadlines


def raise_(error: BaseException) -> None:
    raise error


def test_results_and_errors_of_calls():
    async def run() -> list[object]:
        threads = CallThreads(3, "test")
        calls = [threads.run(pow, 2, n) for n in range(50)]
        calls += [threads.run(raise_, ValueError("no")), threads.run(raise_, StopIteration())]
        found = await asyncio.gather(*calls, return_exceptions=True)
        names = {thread.name for thread in threading.enumerate()} & {"test_0", "test_1", "test_2"}
        await asyncio.to_thread(threads.close)
        assert len(names) == 3
        return found

    found = asyncio.run(run())
    assert found[:50] == [2**n for n in range(50)]
    assert isinstance(found[50], ValueError)
    assert isinstance(found[51], RuntimeError)


def test_a_cancelled_call_that_waits_is_not_made():
    async def run() -> list[int]:
        threads, held, made = CallThreads(1, "test"), threading.Event(), []
        first, second, third = threads.run(held.wait, 20), threads.run(made.append, 2), threads.run(made.append, 3)
        second.cancel()
        held.set()
        await asyncio.gather(first, third)
        await asyncio.to_thread(threads.close)
        return made

    assert asyncio.run(run()) == [3]


def test_results_after_the_event_loop_has_ended_are_dropped():
    """The service ends while a call runs: its thread must not fail, and must be free to end."""
    threads, held = CallThreads(1, "test"), threading.Event()

    async def run() -> None:
        threads.run(held.wait, 20)

    asyncio.run(run())
    held.set()
    threads.close()


def test_blocks_end_at_their_deadline_and_others_go_on():
    async def run() -> list[object]:
        deadlines = Deadlines(0.05)

        async def block(seconds: float) -> str:
            with deadlines.limit():
                await asyncio.sleep(seconds)
            await asyncio.sleep(0)  # the task itself was not cancelled
            return "done"

        calls = [block(seconds) for seconds in (0, 9, 0.01, 9)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        found.append(await block(0))
        found += await asyncio.gather(block(9), return_exceptions=True)  # the timer is set again
        return found

    found = asyncio.run(run())
    assert [one if isinstance(one, str) else type(one) for one in found] == [
        "done", TimeoutError, "done", TimeoutError, "done", TimeoutError,
    ]  # fmt: skip


def test_a_task_that_somebody_else_cancels_stays_cancelled():
    async def run() -> None:
        deadlines = Deadlines(9)

        async def block() -> None:
            with deadlines.limit():
                await asyncio.sleep(9)

        task = asyncio.ensure_future(block())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "body"), [("/v1/search/vector", {"vector": [1.0] * 32}), ("/v1/search/id", {"id": "a/4"})]
)
def test_searches_without_the_router_are_counted_checked_and_logged(client, gallery, monkeypatch, caplog, path, body):
    """They have the headers, the counts and the errors of all other answers."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert client.get(path).status_code == 405
    assert client.post(path, json=body, headers={"Origin": "http://elsewhere.example"}).status_code == 403

    def fail(**query: object) -> None:
        raise KeyError("a mistake in the program")

    monkeypatch.setattr(gallery, "search", fail)
    with caplog.at_level(logging.ERROR):
        failed = client.post(path, json=body)
    assert failed.status_code == 500
    assert "mistake" not in failed.text
    assert "a mistake in the program" in caplog.text
    counts = metric_values(client.get("/metrics").text)
    assert counts["holdfast_requests_total", ("POST", path, "200")] == 1
    assert counts["holdfast_requests_total", ("POST", path, "500")] == 1
