"""Vectors need no torch: a gallery of them, its service, ``bridge`` and ``check`` run where it is not installed."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("qdrant_edge")
pytest.importorskip("fastapi")

SITE = """
import sys

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "timm", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch())
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of 400 things by an old and a new model, and of 40 queries of 4 classes."""
    root = tmp_path_factory.mktemp("without-torch")
    (root / "site").mkdir()
    (root / "site" / "sitecustomize.py").write_text(SITE)
    draw = np.random.default_rng(0)
    classes = np.arange(440) % 4
    seen = 2 * np.eye(4, 12)[classes] + draw.normal(size=(440, 12))
    old, new = seen @ draw.normal(size=(12, 16)), seen @ draw.normal(size=(12, 24))
    for name, vectors in (("old", old), ("new", new)):
        rows = {"features": vectors[:400].astype(np.float32), "labels": classes[:400].astype(str)}
        np.savez(root / f"{name}.npz", **rows, ids=[f"i{n}" for n in range(400)])
        rows = {"features": vectors[400:].astype(np.float32), "labels": classes[400:].astype(str)}
        np.savez(root / f"{name}_queries.npz", **rows, ids=[f"q{n}" for n in range(40)])
    np.save(root / "query.npy", new[7].astype(np.float32))
    return root


def environment(root: Path) -> dict[str, str]:
    path = os.pathsep.join([str(root / "site"), *(one for one in sys.path if one)])
    return {**os.environ, "PYTHONPATH": path, "HOLDFAST_DEBUG": ""}


def run(root: Path, *words: object, status: int | None = 0) -> str:
    """What a command printed; on stderr if it is to fail. Status None: whatever it found."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *map(str, words)],
        cwd=root, env=environment(root), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert status in (None, done.returncode), (words, done.stderr)
    return done.stderr if status else done.stdout


def test_torch_cannot_be_imported_there(root):
    code = "import holdfast, sys; holdfast.Gallery; assert 'torch' not in sys.modules; import torch"
    done = subprocess.run([sys.executable, "-c", code], env=environment(root), capture_output=True, text=True)
    assert "No module named 'torch'" in done.stderr.splitlines()[-1]


def test_a_gallery_of_vectors(root):
    said = run(root, "gallery", "create", "shop", "--vectors", "old.npz")
    assert "version 1 is of vectors alone" in said
    assert "holdfast gallery add shop old.npz --version 1" in said
    assert json.loads(run(root, "gallery", "add", "shop", "old.npz", "--version", 1, "--json"))["added"] == 400
    version = json.loads(run(root, "gallery", "register", "shop", "--new-vectors", "new.npz", "--json"))
    assert (version["number"], version["dim"], version["bridges"][0]["agrees_beyond_chance"]) == (2, 24, True)
    hits = json.loads(run(root, "gallery", "search", "shop", "query.npy", "--k", 3, "--json"))
    assert hits[0]["id"] == "i7"
    assert hits[0]["version"] == 1
    done = json.loads(run(root, "gallery", "backfill", "shop", "--new-vectors", "new.npz", "--limit", 100, "--json"))
    assert (done["moved"], done["left"]) == (100, 300)
    assert json.loads(run(root, "gallery", "search", "shop", "--id", "i7", "--json"))[0]["id"] != "i7"
    with_torch = run(root, "gallery", "search", "shop", "photo.jpg", status=1)
    assert with_torch == "holdfast: version 2 is of vectors alone, without a model that embeds; give vectors of it\n"
    for verb in ("stats", "versions"):
        run(root, "gallery", verb, "shop")


def test_its_service(root):
    run(root, "gallery", "create", "served", "--vectors", "old.npz")
    run(root, "gallery", "add", "served", "old.npz", "--version", 1)
    words = [sys.executable, "-m", "holdfast", "serve", "served", "--port", "0"]
    with subprocess.Popen(words, cwd=root, env=environment(root), stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[-1]
            with np.load(root / "old.npz") as held:
                vector = held["features"][7].tolist()
            request = urllib.request.Request(
                f"{url}/v1/search/vector",
                json.dumps({"vector": vector, "k": 2}).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request) as answer:
                assert json.load(answer)["hits"][0]["id"] == "i7"
            # The commands go to the process that serves the gallery.
            version = json.loads(run(root, "gallery", "register", "served", "--new-vectors", "new.npz", "--json"))
            assert version["bridges"][0]["agrees_beyond_chance"]
            hits = json.loads(run(root, "gallery", "search", "served", "query.npy", "--k", 3, "--json"))
            assert hits[0]["id"] == "i7"
            run(root, "gallery", "backfill", "served", "--new-vectors", "new.npz")
            assert json.loads(run(root, "gallery", "stats", "served", "--json"))["versions"][1]["items"] == 400
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def test_a_model_that_embeds_says_what_it_needs(root, model_folders, picture_files):
    """Its vectors can be kept without torch; embedding an image cannot."""
    run(root, "gallery", "create", "modelled", "--model", model_folders[0])
    np.savez(root / "features.npz", features=np.eye(3, 32, dtype=np.float32), ids=["a", "b", "c"])
    run(root, "gallery", "add", "modelled", "features.npz", "--version", 1)
    np.save(root / "one.npy", np.eye(32, dtype=np.float32)[1])
    assert json.loads(run(root, "gallery", "search", "modelled", "one.npy", "--json"))[0]["id"] == "b"
    error = run(root, "gallery", "search", "modelled", picture_files[0], status=1)
    assert error.startswith("holdfast: a model that embeds needs torch here: ")
    assert len(error.splitlines()) == 1


def test_bridge_and_check(root):
    run(root, "bridge", "--old", "old.npz", "--new", "new.npz", "--out", "bridge", status=None)
    words = ("--gallery", "old.npz", "--queries-old", "old_queries.npz", "--queries-new", "new_queries.npz")
    record = json.loads(run(root, "check", *words, "--bridge", "bridge", "--json", status=None))
    assert record["queries"] == 40
