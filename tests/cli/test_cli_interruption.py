"""Ctrl-C comes out of the watcher, between two steps, while a model trains; at once at any other time."""

import os
import signal

import pytest

from holdfast.cli.progress import between_steps


def pressed() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_the_step_under_way_is_finished():
    seen = []
    with between_steps(seen.append) as watch:
        watch({"event": "begin"})
        pressed()
        seen.append("the step's end")
        with pytest.raises(KeyboardInterrupt):
            watch({"event": "pulse"})
    assert seen == [{"event": "begin"}, "the step's end", {"event": "pulse"}]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_and_one_outside_training_do_not_wait():
    with between_steps(lambda event: None) as watch:
        with pytest.raises(KeyboardInterrupt):
            pressed()
        watch({"event": "begin"})
        pressed()
        with pytest.raises(KeyboardInterrupt):
            pressed()
    with between_steps(lambda event: None) as watch:
        watch({"event": "begin"})
        watch({"event": "features"})
        with pytest.raises(KeyboardInterrupt):
            pressed()


def test_somebody_elses_handler_stays():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with between_steps(print) as watch:
            assert watch is print
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
