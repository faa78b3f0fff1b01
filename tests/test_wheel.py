"""The wheel: its files, and the first commands of a new user, without extras and with the extra ``train``."""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LARGE = ("torch", "scipy", "matplotlib", "PIL", "tomli_w")
EXTRAS = (*LARGE, "fastapi", "uvicorn", "qdrant_edge", "qdrant_client", "psycopg", "transformers", "onnx", "pyarrow")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ci,
    pytest.mark.skipif(os.name == "nt", reason="links the installed dependencies; written for bin/ and lib/ folders"),
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *build, str(ROOT)], check=True)
    (found,) = folder.glob("holdfast_index-*.whl")
    return found


def with_requirements(requirements, extra=""):
    """The installed distributions of ``requirements`` and of all that they require, with one extra or none."""
    from packaging.requirements import Requirement

    found, waiting = {}, [Requirement(text) for text in requirements]
    while waiting:
        required = waiting.pop()
        extras = [extra, *required.extras]
        if required.marker and not any(required.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        name = re.sub(r"[-_.]+", "-", required.name).lower()
        if name in found:
            continue
        found[name] = importlib.metadata.distribution(name)
        waiting += [Requirement(text) for text in found[name].requires or []]
    return found


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """An environment with the wheel and its core dependencies."""
    return environment(wheel, tmp_path_factory.mktemp("environment") / "clean", "")


@pytest.fixture(scope="module")
def with_train(wheel, tmp_path_factory):
    """An environment with the wheel and what its extra ``train`` needs."""
    return environment(wheel, tmp_path_factory.mktemp("environment") / "train", "train")


def environment(wheel, folder, extra):
    """The dependencies are links to the installed ones: torch is large."""
    venv.create(folder, symlinks=True, with_pip=False)
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(folder / "bin" / "python")]
    subprocess.run([*pip, *install], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        required = re.findall(r"^Requires-Dist: (.+)$", archive.read(metadata).decode(), re.MULTILINE)
    for distribution in with_requirements(required, extra).values():
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution.locate_file(top))).resolve())
    return folder


def run(clean, *words, folder):
    """Run a program of the environment away from the source, where no setting of this process reaches it."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HOLDFAST"))}
    command = [str(clean / "bin" / words[0]), *words[1:]]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_files(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = ROOT / "src" / "holdfast"
    kept = {path for path in source.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {f"holdfast/{path.relative_to(source).as_posix()}" for path in kept} <= names
    assert {"holdfast/__init__.pyi", "holdfast/py.typed"} <= names
    assert any(name.startswith("holdfast/service/page/") and name.endswith(".js") for name in names)
    recipes = {path.relative_to(ROOT / "recipes").as_posix() for path in (ROOT / "recipes").rglob("*.toml")}
    assert recipes
    assert {f"holdfast/train/experiments/builtin/{name}" for name in recipes} <= names
    assert {name.split("/")[0] for name in names} == {"holdfast", wheel.name.partition("-py3")[0] + ".dist-info"}


def test_no_extra_is_there(clean, tmp_path):
    code = f"import importlib.util as u; print([n for n in {(*EXTRAS, 'papers')} if u.find_spec(n)])"
    assert run(clean, "python", "-c", code, folder=tmp_path).stdout.strip() == "[]"
    imported = run(clean, "python", "-c", "import holdfast; print(holdfast.__file__)", folder=tmp_path).stdout
    assert imported.startswith(str(clean))


def test_doctor(clean, tmp_path):
    found = run(clean, "holdfast", "doctor", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert re.search(r"^ ?numpy\s+ok ", found.stdout, re.MULTILINE)
    for package in ("torch", "PIL", "fastapi"):
        assert re.search(rf"^ ?{package}\s+– ", found.stdout, re.MULTILINE), package


def test_the_core_is_small(wheel, clean):
    """At most 350 MB on disk; the extra ``train`` alone is larger."""
    with zipfile.ZipFile(wheel) as archive:
        own = sum(entry.file_size for entry in archive.infolist())
    (packages,) = clean.glob("lib/python*/site-packages")
    linked = [path.resolve() for path in packages.iterdir() if path.is_symlink()]
    files = [file for top in linked for file in ([top] if top.is_file() else top.rglob("*")) if file.is_file()]
    assert own + sum(file.stat().st_size for file in files if file.suffix != ".pyc") < 350e6


def test_what_needs_the_extra_says_so(clean, tmp_path):
    found = run(clean, "holdfast", "run", "demo", folder=tmp_path)
    assert (found.returncode, found.stderr.count("\n")) == (1, 1)
    assert "which is not installed; pip install '.[train]'" in found.stderr
    found = run(clean, "python", "-c", "from holdfast import Encoder", folder=tmp_path)
    assert "ImportError: holdfast.Encoder: needs " in found.stderr


def test_a_bridge_needs_numpy_alone(clean, tmp_path):
    """And importing it and the check loads nothing that the core does not have."""
    code = "import sys; from holdfast import Bridge, check, nearest; print({'torch', 'PIL', 'rich'} & set(sys.modules))"
    assert run(clean, "python", "-c", code, folder=tmp_path).stdout.strip() == "set()"
    rng = np.random.default_rng(0)
    old = rng.standard_normal((400, 16)).astype(np.float32)
    turned = old @ np.linalg.qr(rng.standard_normal((16, 16)))[0].astype(np.float32)
    np.savez(tmp_path / "old.npz", features=old, ids=np.arange(400))
    np.savez(tmp_path / "new.npz", features=turned, ids=np.arange(400))
    found = run(clean, "holdfast", "bridge", "--old", "old.npz", "--new", "new.npz", "--out", "b", folder=tmp_path)
    assert found.returncode == 3, found.stderr  # without judgements the bridge is written and provisional
    assert (tmp_path / "b" / "bridge.json").is_file()


def test_the_loop_of_the_guide(with_train, tmp_path):
    page = (ROOT / "docs/own-loop.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL).group(1)
    (tmp_path / "loop.py").write_text(example + "print(features.shape)\n", encoding="utf-8")
    found = run(with_train, "python", "loop.py", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "(4, 64)" in found.stdout.replace("[", "(").replace("]", ")")


def test_recipes_are_found(with_train, tmp_path):
    found = run(with_train, "holdfast", "ls", "recipes", folder=tmp_path)
    assert found.returncode == 0, found.stderr
    assert "cifar100-10/simplex_hoc" in found.stdout


@pytest.mark.parametrize(("noise", "status", "verdict"), [(0.1, 0, "better"), (9.0, 1, "worse")])
def test_check(clean, tmp_path, noise, status, verdict):
    """The new model's queries are closer to their classes in the old gallery than the old model's, or far away."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 20
    centres = rng.standard_normal((20, 16))
    for name, spread in (("gallery", 0.5), ("queries_old", 1.5), ("queries_new", noise)):
        features = centres[labels] + spread * rng.standard_normal((400, 16))
        np.savez(tmp_path / f"{name}.npz", features=features.astype(np.float32), labels=labels)
    words = ("--gallery", "gallery.npz", "--queries-old", "queries_old.npz", "--queries-new", "queries_new.npz")
    found = run(clean, "holdfast", "check", *words, "--json", folder=tmp_path)
    assert found.returncode == status, found.stderr
    assert json.loads(found.stdout)["verdict"] == verdict
