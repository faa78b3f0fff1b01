"""An engine exchanged while it is used: the one before is handed back when nobody uses it any more."""

import threading

import pytest

from holdfast.gallery.engines.protocol import SwitchingEngine


class SlowEngine:
    """Searches end when they are let; a closed engine would not answer."""

    def __init__(self, name):
        self.name, self.begun, self.let = name, threading.Event(), threading.Event()

    def search(self, collection, query, k, where=None, *, exact=False, share=1.0):
        self.begun.set()
        assert self.let.wait(30)
        return self.name

    def scan(self, collection, *, block=1000, after=-1):
        yield from (self.name, self.name)


@pytest.fixture
def engines():
    return SlowEngine("before"), SlowEngine("after")


def test_a_switch_waits_for_the_calls_under_way(engines):
    before, after = engines
    after.let.set()
    switching, answers, handed_back = SwitchingEngine(before), [], []
    search = threading.Thread(target=lambda: answers.append(switching.search("v0001", None, 1)))
    search.start()
    assert before.begun.wait(30)
    switch = threading.Thread(target=lambda: handed_back.append(switching.switch(after)))
    switch.start()
    switch.join(timeout=0.2)
    assert switch.is_alive()
    assert switching.search("v0001", None, 1) == "after"  # what begins now is not held up
    assert handed_back == []
    before.let.set()
    search.join(30)
    switch.join(30)
    assert (answers, handed_back) == (["before"], [before])


def test_a_scan_holds_its_engine_to_the_end(engines):
    before, after = engines
    switching = SwitchingEngine(before)
    scan = switching.scan("v0001")
    assert next(scan) == "before"
    switch = threading.Thread(target=switching.switch, args=(after,))
    switch.start()
    switch.join(timeout=0.2)
    assert switch.is_alive()
    assert list(scan) == ["before"]
    switch.join(30)
    assert not switch.is_alive()
