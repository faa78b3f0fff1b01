"""Many runs that fail in the same way are told of once."""

from papers.sweeps.failures import failure_lines


def test_reasons_that_differ_in_the_run_alone_are_one():
    failed = {
        "iam/a-s0": "runs/iam/a-s0/model: not there",
        "iam/b-s0": "the loss became NaN",
        "iam/a-s1": "runs/iam/a-s1/model: not there",
        "iam/c-s0": "runs/iam/c-s0/model: not there",
    }
    assert failure_lines(failed) == [
        "iam/a-s0 and 2 more failed: runs/iam/a-s0/model: not there",
        "iam/b-s0 failed: the loss became NaN",
    ]
    assert failure_lines({}) == []
