"""Settings of the whole process, changed by several threads."""

import contextlib
import sys

from holdfast.core.process_settings import SHORT_TURNS, ProcessSetting


def test_the_last_thread_to_leave_restores_the_setting():
    held = ["tf32"]
    setting = ProcessSetting(lambda: held[-1], held.append, lambda before: f"not {before}")
    setting.__enter__()
    setting.__enter__()
    setting.__exit__()  # whichever of the two began first
    assert held == ["tf32", "not tf32"]
    setting.__exit__()
    assert held == ["tf32", "not tf32", "tf32"]


def test_an_error_restores_the_setting():
    usual = sys.getswitchinterval()
    with contextlib.suppress(KeyError), SHORT_TURNS:
        assert sys.getswitchinterval() < usual
        raise KeyError
    assert sys.getswitchinterval() == usual
