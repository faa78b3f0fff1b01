"""The gallery at the end of the demo: truly mixed, kept, served, or honestly missing."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.cli.demo import DemoGallery, finish_with_gallery
from holdfast.errors import HoldfastError
from holdfast.experiments.assemble import SharedData
from holdfast.experiments.load import read_recipe
from holdfast.experiments.schema import check_recipe
from holdfast.gallery import Gallery

pytest.importorskip("qdrant_edge")

SETS = [
    "data.train.train_classes=6", "data.train.test_classes=4", "data.train.per_class_train=8",
    "data.query.test_classes=4", "data.query.per_class_query=3", "data.gallery.test_classes=4",
    "data.gallery.per_class_gallery=6", "scenario.initial=2", "scenario.tasks=3", "backbone.width=4", "train.epochs=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished demo, so that the tests train nothing; its gallery and images are left out."""
    out = tmp_path_factory.mktemp("demo")
    result = CliRunner().invoke(app, words(out))
    assert result.exit_code == 0, result.output
    for name in ("gallery", "gallery-images", "query-images"):
        shutil.rmtree(out / name)
    return out


@pytest.fixture
def demo(holdfast, trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return lambda *more: holdfast(*words(tmp_path), *more)


def words(out: Path) -> list[str]:
    sets = [word for setting in SETS for word in ("--set", setting)]
    return ["demo", "--out", str(out), "--methods", "simplex_hoc", "-q", *sets]


def test_mixed_kept_and_made_again(demo, tmp_path):
    text = demo()
    folder = tmp_path / "gallery"
    assert "simplex_hoc's 3 models" in text
    assert f"holdfast serve {folder}" in text.replace("\n", "")
    with Gallery.open(folder) as gallery:
        assert [row["items"] for row in gallery.stats()["versions"]] == [8, 8, 8]
        assert gallery.stats()["labelled"] == 24
        hits = gallery.search(min((tmp_path / "query-images").iterdir()), k=24)
        assert {hit.version for hit in hits} == {1, 2, 3}
        assert all(Path(hit.path).is_file() for hit in hits)
        assert gallery.backfill(limit=5).progress.moved == 5
    demo()
    with Gallery.open(folder) as gallery:  # as it was left
        assert [row["items"] for row in gallery.stats()["versions"]] == [3, 8, 13]
        assert "No gallery: " in demo()
    recipe = check_recipe(read_recipe("demo", SETS))
    scores = {"simplex_hoc": {"AC": float("nan"), "AA": 0.5}}
    finish_with_gallery(scores, lambda _: SharedData().open_set(recipe), tmp_path, again=True)
    with Gallery.open(folder) as gallery:
        assert [row["items"] for row in gallery.stats()["versions"]] == [8, 8, 8]


def test_bridges_are_shown(capsys, tmp_path):
    """One line for each older version; how far the newest model's queries reach its items."""

    def bridge(older, kind, exposure, without):
        return {"version": older, "kind": kind, "exposure": exposure, "exposure_without": without}

    bridges = [
        bridge(1, "rotation", {"1": 0.95, "10": 0.98}, {"1": 0.01, "10": 0.02}),
        bridge(2, "none", {"1": 1.02, "10": 1.0}, {"1": 1.02, "10": 1.0}),
        bridge(3, "affine", {}, None),
        bridge(4, "none", {"1": 0.97, "10": 1.0}, {"1": 0.44, "10": 0.79}),
    ]
    versions = [SimpleNamespace(number=1, bridges=[]), SimpleNamespace(number=5, bridges=bridges)]
    DemoGallery(tmp_path, tmp_path / "q.png", "er", versions).print()
    text = capsys.readouterr().out
    for line in (
        "Bridges of version 5, fitted by gallery register:",
        "    version 1: rotation; exposure 0.95 at 1, 0.98 at 10 (0.01, 0.02 without)",
        "    version 2: no map; exposure 1.02 at 1, 1.00 at 10",
        "    version 3: affine; too few images to measure exposure",
        "    version 4: only scaled; exposure 0.97 at 1, 1.00 at 10 (0.44, 0.79 without)",
    ):
        assert line in text.splitlines()
        assert len(line) <= 80
    DemoGallery(tmp_path, tmp_path / "q.png", "er", versions[:1]).print()
    assert "Bridges" not in capsys.readouterr().out


def test_nothing_is_registered_by_force(demo, monkeypatch):
    registered = []
    own = Gallery.register

    def register(self, model, **options):
        registered.append(options)
        return own(self, model, **options)

    monkeypatch.setattr(Gallery, "register", register)
    demo()
    assert len(registered) == 2
    assert not any(options.get("force") for options in registered)


def test_a_refused_model_is_named_and_the_others_are_used(demo, tmp_path, monkeypatch):
    own = Gallery.register

    def register(self, model, **options):
        if Path(model).name == "02":
            raise HoldfastError(f"{model}: incompatible on version 1")
        return own(self, model, **options)

    monkeypatch.setattr(Gallery, "register", register)
    text = " ".join(demo().split())
    assert "simplex_hoc's 2 models" in text
    assert f"Refused: {tmp_path / 'simplex_hoc' / 'models' / '02'}: incompatible on version 1" in text
    with Gallery.open(tmp_path / "gallery") as gallery:
        assert [row["items"] for row in gallery.stats()["versions"]] == [16, 8]
    again = " ".join(demo().split())
    assert f"Not in the gallery: {tmp_path / 'simplex_hoc' / 'models' / '02'}" in again


def test_without_the_extra(demo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    text = demo()
    assert "Report: " in text
    assert "No gallery: the embedded gallery needs qdrant-edge: pip install '.[gallery]' in Holdfast's clone" in text
    assert not (tmp_path / "gallery").exists()
    with pytest.raises(HoldfastError, match="nothing to serve: the embedded gallery needs"):
        demo("--serve")


def test_serve(demo, tmp_path, monkeypatch):
    served = []

    def serve(folder: Path, port: int = typer.Option(8321)) -> None:
        served.append((folder, port))

    monkeypatch.setattr("holdfast.cli.serve.serve", serve)
    demo("--serve")
    assert served == [(tmp_path / "gallery", 8321)]


def test_commands_are_named_as_the_shell_finds_them(monkeypatch, tmp_path):
    from holdfast.cli.demo import program

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(tmp_path / ".venv" / "bin" / "holdfast"), "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program() == ".venv/bin/holdfast"
    (tmp_path / "holdfast").touch(mode=0o755)
    assert program() == "holdfast"
    monkeypatch.setattr("sys.argv", ["pytest"])
    monkeypatch.setenv("PATH", "")
    assert program() == "holdfast"
