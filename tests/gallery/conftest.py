"""Three small models of two architectures over one simplex of 60 slots, images to show them, and every engine."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from postgres_server import PostgresServer, installed_server

from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.scenarios import SlotRegistry

SLOTS = 60


def make_model(
    folder: Path, seed: int, *, name: str = "small", slots: int = SLOTS, owners: list[str] | None = None, **options: int
) -> Path:
    """An untrained encoder whose projection goes to ``slots`` - 1 numbers, saved; another seed, another model."""
    torch.manual_seed(seed)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    registry = SlotRegistry(slots).take_left(owners or ["a", "b"])
    backbone = build_backbone(name, **({"in_channels": 1} if name != "small" else {}), **options)
    encoder = Encoder(backbone, slots - 1, preprocess=preprocess, info={"slots": registry.to_json()})
    encoder.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Features of 59 numbers: models 1 and 2 are stored as 32, model 3, another architecture with 64, as they are."""
    root = tmp_path_factory.mktemp("models")
    return [
        make_model(root / "01", 1, width=8),
        make_model(root / "02", 2, width=8, owners=["a", "b", "c"]),
        make_model(root / "03", 3, name="resnet32", owners=["a", "b", "c", "d"]),
    ]


@pytest.fixture(name="make_model", scope="session")
def make_model_fixture() -> Callable[..., Path]:
    return make_model


@pytest.fixture(scope="session")
def pictures() -> np.ndarray:
    """150 random grey pictures of 16 x 16, uint8."""
    return np.random.default_rng(0).integers(0, 256, (150, 16, 16, 1), dtype=np.uint8)


@pytest.fixture(scope="session")
def picture_files(pictures: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first 40 of them as PNG files in folders of four classes."""
    root = tmp_path_factory.mktemp("pictures")
    files = []
    for number, picture in enumerate(pictures[:40]):
        file = root / f"class{number % 4}" / f"{number:03d}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray(picture[..., 0]).save(file)
        files.append(file)
    return files


# Imports once; every line on stdin is the start of a child, which writes what it acknowledges to a file.
NURSERY = """
import json, os, sys, traceback
from pathlib import Path
import numpy as np, torch
import holdfast.gallery.state as gallery_state
from holdfast import Gallery
from holdfast.gallery import Item
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        notes = os.open(job["notes"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        note = lambda *words: os.write(notes, (" ".join(map(str, words)) + "\\n").encode())
        try:
            exec(job["script"], {**globals(), "note": note, **job["names"]})
        except BaseException:
            note("raised", traceback.format_exc().replace("\\n", "|"))
        os._exit(0)
    print(child, flush=True)
    print(os.waitpid(child, 0)[1], flush=True)
"""


def kill_at_once(process: int) -> None:
    os.kill(process, signal.SIGKILL)


class Nursery:
    """Starts processes that are killed: each has all imports done, so that a trial takes as long as what it tries."""

    def __init__(self, folder: Path) -> None:
        self._notes = folder / "notes"
        quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # no threads before the fork
        self._process = subprocess.Popen(
            [sys.executable, "-c", NURSERY],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **quiet},
        )

    def run_and_kill(
        self,
        script: str,
        moments: random.Random,
        most: int,
        *,
        kill: Callable[[int], None] = kill_at_once,
        **names: object,
    ) -> list[str]:
        """Run a script that notes "open" first; kill it up to 50 ms after one of its next ``most`` notes, by chance.

        By its notes, not by the clock: a busy machine tries the same moments. What it noted after "open".
        """
        self._notes.unlink(missing_ok=True)
        job = {"script": script, "notes": str(self._notes), "names": names}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        wanted = moments.randint(1, most)
        while len(lines := self._lines()) < wanted and not (lines and lines[-1].startswith("raised")):
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.05))
        kill(child)
        assert int(self._process.stdout.readline()) == signal.SIGKILL, self._notes.read_text()
        first, *lines = self._lines()
        assert first == "open", first
        return lines

    def _lines(self) -> list[str]:
        """An unfinished line was not acknowledged."""
        return self._notes.read_text().split("\n")[:-1] if self._notes.exists() else []

    def close(self) -> None:
        self._process.communicate()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server of our own, which may be stopped and started."""
    pytest.importorskip("psycopg")
    skip_without_postgres()
    server = PostgresServer()
    yield server
    server.remove()


def skip_without_postgres() -> None:
    """Skip a test for which there is no server; with HOLDFAST_NEED_POSTGRES, as in CI, it fails instead."""
    if installed_server() is None:
        stop = pytest.fail if os.environ.get("HOLDFAST_NEED_POSTGRES") else pytest.skip
        stop("no PostgreSQL: install the dev extra")


@pytest.fixture(scope="session")
def address_of(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """The address of an engine by its kind. HOLDFAST_TEST_POSTGRES names a server; without, one is started here."""

    def address(kind: str) -> str:
        if kind == "embedded":
            pytest.importorskip("qdrant_edge")
            return kind
        pytest.importorskip("psycopg")
        return os.environ.get("HOLDFAST_TEST_POSTGRES") or request.getfixturevalue("postgres_server").url

    return address
