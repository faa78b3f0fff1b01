"""Quick to answer, narrow enough to read, and nothing imported that is not needed."""

import subprocess
import sys
import time

import pytest
from PIL import Image

TRAINING = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"pydantic", "typer", "click", "rich", "matplotlib", "transformers", "timm"}:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocker())

import numpy as np
from holdfast.encoders import Encoder, Preprocess, build_backbone
from holdfast.data.device_images import DeviceImages
from holdfast.data.images import canonical
from holdfast.training import FitOptions, ScenarioSetup, train_scenario
from holdfast.methods import SimplexHOC
from holdfast.run_folder import RunFolder
from holdfast.scenarios import cl2r

random = np.random.default_rng(0)
names = ["a", "b", "c", "d"]
pixels = random.integers(0, 256, (16, 16, 16, 1), dtype=np.uint8)
images = canonical(pixels, np.repeat(np.arange(4), 4), names, source="random")
preprocess = Preprocess(size=16, mean=(0.5,), std=(0.3,), colour="grey")
train_scenario(
    cl2r(images.labels, names, initial=2, tasks=2, buffer_per_class=1),
    DeviceImages(images),
    RunFolder(sys.argv[1]),
    ScenarioSetup(
        make_encoder=lambda: Encoder(build_backbone("small", width=8), 3, preprocess=preprocess),
        make_method=lambda: SimplexHOC(slots=4),
        options=FitOptions(epochs=1, batch_size=4),
    ),
)
assert Encoder.from_pretrained(RunFolder(sys.argv[1]).model(2)).encode(images.images).shape == (16, 3)
"""


def test_help_answers_in_under_a_second(command):
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        assert command("--help").returncode == 0
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 1


def test_help_of_every_verb_imports_nothing_heavy():
    code = """
import sys
import typer
from typer.testing import CliRunner
from holdfast.cli import app

def pages(command, words=()):
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        yield from pages(inner, (*words, name))

for words in [("--version",), *((*page, "--help") for page in pages(typer.main.get_command(app)))]:
    assert CliRunner().invoke(app, list(words)).exit_code == 0, words
    loaded = {"torch", "numpy", "PIL", "matplotlib", "safetensors", "scipy"} & sys.modules.keys()
    assert not loaded, (words, loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_search_imports_no_web_server_and_no_statistics(tmp_path):
    """Each of these takes as long to import as a small search takes."""
    code = """
import sys
import holdfast.service.local_commands
from holdfast.pixels import open_image
open_image(sys.argv[1])
heavy = {"fastapi", "scipy", "matplotlib", "transformers", "PIL.DdsImagePlugin", "PIL.EpsImagePlugin"}
print(*heavy & sys.modules.keys())
"""
    pytest.importorskip("qdrant_edge")
    Image.new("RGB", (4, 4)).save(tmp_path / "query.jpg")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "query.jpg")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--help"],
        *[[verb, "--help"] for verb in ("demo", "run", "evaluate", "check", "metrics", "report", "ls", "doctor")],
        *[["ls", kind] for kind in ("methods", "backbones", "datasets", "recipes")],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_eighty_columns(words, monkeypatch):
    from typer.testing import CliRunner

    from holdfast.cli import app

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    text = CliRunner().invoke(app, words).output
    assert text.strip()
    assert [line for line in text.splitlines() if len(line) > 80] == []


def test_eighty_columns_as_a_process(command):
    for words in (["--help"], ["run", "--help"], ["ls", "methods"]):
        done = command(*words)
        assert done.returncode == 0
        assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_every_verb_is_offered(command):
    text = command("--help").stdout
    assert all(verb in text for verb in ("demo", "run", "evaluate", "check", "metrics", "report", "ls", "doctor"))


def test_training_needs_only_torch_numpy_pillow_safetensors(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", TRAINING, str(tmp_path / "run")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
