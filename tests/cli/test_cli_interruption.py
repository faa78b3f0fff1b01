"""Ctrl-C while a model trains cancels it between two steps; at any other time it interrupts at once."""

import os
import signal

import pytest

from holdfast.cli.progress import cancel_on_interrupt


@pytest.fixture(autouse=True)
def usual_handler():
    """As in a terminal. A shell starts background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_training_is_cancelled_not_interrupted():
    with cancel_on_interrupt() as cancel:
        with cancel.watching():
            assert not cancel.requested
            press_ctrl_c()
        assert cancel.requested
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_one_and_one_outside_training_do_not_wait():
    with cancel_on_interrupt() as cancel:
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()
        assert not cancel.requested
        with cancel.watching():
            press_ctrl_c()
            with pytest.raises(KeyboardInterrupt):
                press_ctrl_c()
    with cancel_on_interrupt() as cancel:
        with cancel.watching():
            pass
        with pytest.raises(KeyboardInterrupt):
            press_ctrl_c()


def test_another_handler_stays():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with cancel_on_interrupt() as cancel:
            assert not cancel.requested
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
