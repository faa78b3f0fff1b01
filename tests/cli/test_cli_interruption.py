"""Ctrl-C or SIGTERM while a model trains cancels it between two steps; at any other time it interrupts at once."""

import os
import signal

import pytest
import typer

from holdfast.cli.progress import cancel_on_interrupt, exit_on_interrupt

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def usual_handler():
    """As in a terminal. A shell starts background jobs with the signal ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@BOTH
def test_engine_is_cancelled_not_interrupted(number):
    with cancel_on_interrupt() as cancel:
        with cancel.watching():
            assert not cancel.requested
            send(number)
        assert cancel.requested
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@BOTH
def test_a_second_one_and_one_outside_training_do_not_wait(number):
    with cancel_on_interrupt() as cancel:
        with pytest.raises(KeyboardInterrupt):
            send(number)
        assert not cancel.requested
        with cancel.watching():
            send(number)
            with pytest.raises(KeyboardInterrupt):
                send(number)
    with cancel_on_interrupt() as cancel:
        with cancel.watching():
            pass
        with pytest.raises(KeyboardInterrupt):
            send(number)


@BOTH
def test_the_command_exits_with_a_line(number, capsys):
    with pytest.raises(typer.Exit) as exited, exit_on_interrupt():
        send(number)
    assert exited.value.exit_code == 130
    assert capsys.readouterr().err == (
        "holdfast: interrupted; finished work is kept; run the same command again to resume\n"
    )
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_engine_in_a_command_is_cancelled_too():
    with exit_on_interrupt(), cancel_on_interrupt() as cancel, cancel.watching():
        send(signal.SIGTERM)
        assert cancel.requested


@BOTH
def test_another_handler_stays(number):
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with exit_on_interrupt(), cancel_on_interrupt() as cancel:
            assert not cancel.requested
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
