"""The command line in this process, for speed, and as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.cli import app


@pytest.fixture
def holdfast() -> Callable[..., str]:
    """Run a verb in this process; its stdout. What it raises is raised."""

    def call(*words: object, status: int = 0) -> str:
        result = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == status, result.output
        return result.stdout

    return call


@pytest.fixture
def holdfast_json(holdfast: Callable[..., str]) -> Callable[..., Any]:
    """Run a verb with ``--json``; what it printed, read strictly."""

    def call(*words: object) -> Any:
        return json.loads(holdfast(*words, "--json"), parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))

    return call


@pytest.fixture
def command() -> Callable[..., subprocess.CompletedProcess[str]]:
    """``python -m holdfast`` as a process of its own."""

    def call(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast", *(str(word) for word in words)],
            capture_output=True,
            text=True,
            cwd=cwd,
            env={**os.environ, "COLUMNS": "80", **environment},
            check=False,
            timeout=120,
        )

    return call
