"""Every public metric's docstring example is run, and none is missing; the layer stays free of torch."""

import doctest
import subprocess
import sys

import pytest

import holdfast.metrics
from holdfast.metrics import compatibility, distributions, intervals, ranking, verification

MODULES = [compatibility, distributions, intervals, ranking, verification]


@pytest.mark.parametrize("module", MODULES)
def test_doctests(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", [n for n in holdfast.metrics.__all__ if n != "read_matrix"])
def test_every_metric_has_an_example(name):
    assert ">>>" in getattr(holdfast.metrics, name).__doc__


def test_no_torch():
    code = "import sys, holdfast.metrics, holdfast.reports; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
