"""Many runs that fail in the same way are told of once."""

import pytest

from holdfast.cli.sweep_progress import Bars, Lines, failure_lines
from holdfast.train.events import RunFailed, RunWarning

FAILED = {
    "iam/a-s0": "runs/iam/a-s0/model: not there",
    "iam/b-s0": "the loss became NaN",
    "iam/a-s1": "runs/iam/a-s1/model: not there",
    "iam/c-s0": "runs/iam/c-s0/model: not there",
}


def test_reasons_that_differ_in_the_run_alone_are_one():
    assert failure_lines(FAILED) == [
        "iam/a-s0 and 2 more failed: runs/iam/a-s0/model: not there",
        "iam/b-s0 failed: the loss became NaN",
    ]
    assert failure_lines({}) == []


@pytest.mark.parametrize("kind", [Lines, Bars])
def test_meanwhile_each_reason_is_shown_once_and_warnings_always(kind, capsys):
    with kind(list(FAILED)) as show:
        for name, reason in FAILED.items():
            show(name, RunWarning("careful"))
            show(name, RunFailed(reason))
    shown = capsys.readouterr().err
    assert shown.count(": failed: ") == 2
    assert "iam/a-s0: failed: runs/iam/a-s0/model: not there" in shown
    assert shown.count(": warning: careful") == 4
