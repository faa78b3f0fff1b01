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

from holdfast.cli import app, main


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
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The whole program, with its one line for an error, in this process: another one would import torch again."""

    def call(*words: object, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        given = [str(word) for word in words]
        with monkeypatch.context() as patch:
            for name, value in {"COLUMNS": "80", "HOLDFAST_CODE": "", **environment}.items():
                patch.setenv(name, value)
            if cwd is not None:
                patch.chdir(cwd)
            patch.setattr(sys, "argv", ["holdfast", *given])
            capsys.readouterr()
            with pytest.raises(SystemExit) as end:
                main()
        printed = capsys.readouterr()
        status = end.value.code if isinstance(end.value.code, int) else 0
        return subprocess.CompletedProcess(given, status, printed.out, printed.err)

    return call


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
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
