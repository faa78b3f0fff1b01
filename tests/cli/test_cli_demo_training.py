"""The training demo: its table is that of its checks, what is finished is used again, its gallery has both versions."""

import json
import re
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast import Gallery, check
from holdfast.bridges import Bridge
from holdfast.cli import app, demo_story
from holdfast.cli import demo_training as verb
from holdfast.cli.demo_story import DemoSettings
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")

ROOT = Path(__file__).parents[2]
TINY = DemoSettings(
    train_classes=6, test_classes=4, per_class_train=10, per_class_index=20, per_class_query=6, epochs=1
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A demo without its gallery."""
    from holdfast.cli.demo_story import run_demo
    from holdfast.train.engine import Cancellation

    out = tmp_path_factory.mktemp("demo") / "demo"
    record = run_demo(out, TINY, lambda name, event: None, Cancellation())
    return out, record


@pytest.fixture
def demo(holdfast, finished, tmp_path, monkeypatch):
    """Runs ``holdfast demo`` on a copy of the finished one, in ``tmp_path``."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(verb, "SETTINGS", TINY)
    return lambda *more: holdfast("demo", "--train", "--out", tmp_path, *more)


def test_the_scores_are_those_of_the_checks(finished):
    out, record = finished
    files = out / "features"
    scores = record["scores"]
    for name, model in (("plain", "2-plain"), ("holdfast", "2")):
        sets = [files / f"{part}.npz" for part in ("index-1", "queries-1", f"queries-{model}", f"index-{model}")]
        plain = check(*sets)
        bridged = check(*sets, bridge=Bridge.load(out / "bridges" / model))
        assert scores["version_1"]["value"] == plain.self_test.value
        assert scores[name] == asdict(plain.cross_test)
        assert scores[f"{name}_bridge"] == asdict(bridged.cross_test)
        assert scores["reembedded" if name == "plain" else "holdfast_reembedded"] == asdict(plain.new_self_test)
        assert record["checks"][name]["at_most_1_point_lost"] == plain.loss.answer
        assert (out / "checks" / f"{name}_bridge.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_plain_fine_tuning_begins_with_version_1_and_sees_what_update_sees(finished):
    """As many steps as ``update``; other weights than both, and a classifier of its own."""
    out, _ = finished
    models = {name: Encoder.from_pretrained(out / "models" / name) for name in ("1", "2-plain", "2")}
    weights = [
        np.concatenate([one.detach().flatten().numpy() for one in model.parameters()]) for model in models.values()
    ]
    first, plain, trained = weights
    assert len(first) == len(plain) == len(trained)
    moved = np.linalg.norm(plain - first) / np.linalg.norm(first)
    assert 0 < moved < 0.5  # trained on, not from new random weights
    assert not np.array_equal(plain, trained)


def test_no_model_is_trained_on_a_searched_character(finished):
    out, _ = finished
    folders = {part.name: {one.name for one in part.iterdir()} for part in (out / "images").iterdir()}
    assert folders["index"] == folders["queries"]
    assert len(folders["first"]) == len(folders["second"]) == 3
    assert not folders["index"] & (folders["first"] | folders["second"])
    assert not folders["first"] & folders["second"]
    pairs = np.load(out / "features" / "sample-2-plain.npz")
    assert len(pairs["ids"]) == 20
    assert "labels" not in pairs


def test_the_table_and_its_sentences(demo, finished, tmp_path):
    _, record = finished
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*/*")}
    text = demo()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("models/*/*")} == stamps  # nothing is trained again
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines if "/" not in line)
    shown = {key: f"{100 * found['value']:.1f}" for key, found in record["scores"].items()}
    for start, key in (
        (" version 1 ", "version_1"),
        (" version 2, plain", "plain"),
        (" version 2, trained", "holdfast"),
        (" re-embedded", "reembedded"),
    ):
        (line,) = [line for line in lines if line.startswith(start)]
        assert shown[key] in line.split(), line
    words = " ".join(text.split())
    for key, value in shown.items():
        assert f"{value} %" in words, key
    assert record["checks"]["plain"]["at_most_1_point_lost"] in words
    printed = json.loads(demo("--json"))
    assert printed["scores"] == record["scores"]
    assert [one["number"] for one in printed["gallery"]["versions"]] == [1, 2]


def test_the_commands_of_the_page_work_in_the_folder(finished, tmp_path, monkeypatch):
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    commands = re.findall(r"^holdfast ((?:bridge|check) .*)", page, re.MULTILINE)
    assert [line.split()[0] for line in commands] == ["bridge", "check"]
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    for line in commands:
        found = CliRunner().invoke(app, shlex.split(line))
        assert found.exit_code in (0, 1, 3), found.output  # 2 is bad input


def test_the_page_shows_the_measured_seeds():
    page = (ROOT / "docs/demo.md").read_text(encoding="utf-8")
    record = json.loads((ROOT / "results/bench/demo-2cores.json").read_text(encoding="utf-8"))
    keys = list(record["rows"][0]["scores"])
    lines = page[page.index("| seed | 0") :].split("\n\n")[0].splitlines()[2:]
    shown = [[float(cell) for cell in line.strip("|").split("|")[1:]] for line in lines]
    measured = {key: [round(100 * row["scores"][key]["value"], 1) for row in record["rows"]] for key in keys}
    assert shown == list(measured.values())
    assert [row["seed"] for row in record["rows"]] == [0, 1, 2, 3, 4]
    lost = [one - two for one, two in zip(measured["version_1"], measured["plain"], strict=True)]
    brought = [one - two for one, two in zip(measured["plain_bridge"], measured["plain"], strict=True)]
    assert "loses 10 to 15 points" in page
    assert (round(min(lost)), round(max(lost))) == (10, 15)
    assert min(one / two for one, two in zip(brought, lost, strict=True)) > 2 / 3
    ahead = np.sign(np.subtract(measured["holdfast_bridge"], measured["plain_bridge"])).tolist()
    assert sorted(ahead) == [-1, 0, 1, 1, 1]


def test_the_gallery_holds_both_versions_and_is_kept(demo, tmp_path):
    text = demo()
    folder = tmp_path / "gallery"
    assert f"holdfast serve {folder}" in text.replace("\n", "")
    with Gallery.open(folder) as gallery:
        assert [row["items"] for row in gallery.stats()["versions"]] == [80, 12]
        query = re.search(r"\S+images/queries/\S+\.png", text.replace("\n", ""))
        hits = gallery.search(Path(query.group()), k=92)
        assert {hit.version for hit in hits} == {1, 2}
        assert all(Path(hit.path).is_file() for hit in hits)
        assert Path(query.group()).resolve() not in {Path(hit.path).resolve() for hit in hits}
        assert gallery.backfill(limit=5).progress.moved == 5
    demo()
    with Gallery.open(folder) as gallery:  # as it was left
        assert [row["items"] for row in gallery.stats()["versions"]] == [75, 17]


def test_a_refused_version_is_named(demo, monkeypatch):
    def register(self, model, **options):
        raise HoldfastError(f"{model}: finds less on version 1")

    monkeypatch.setattr(Gallery, "register", register)
    assert "version 1 only. Refused: " in " ".join(demo().split())
    assert "version 1 only. Refused: " in " ".join(demo().split())  # of the gallery that was kept


def test_without_the_extra(demo, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "qdrant_edge", None)
    text = " ".join(demo().split())
    assert "re-embedded by version 2" in text
    assert "No gallery: the embedded gallery needs qdrant-edge: pip install '.[gallery]' in Holdfast's clone" in text
    assert not (tmp_path / "gallery").exists()


def test_other_settings_and_other_folders_are_refused(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(verb, "SETTINGS", DemoSettings())
    with pytest.raises(HoldfastError, match="holds a demo with other settings"):
        demo()
    (tmp_path / "demo.json").unlink()
    with pytest.raises(HoldfastError, match="is not empty and not of a demo"):
        demo()
    assert (tmp_path / "models" / "1" / "model.safetensors").is_file()


def test_a_failed_training_is_named_and_can_be_resumed(finished, tmp_path, monkeypatch):
    from holdfast.train.engine import Cancellation

    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "demo.json").write_text(json.dumps({"settings": asdict(TINY)}))
    shutil.rmtree(tmp_path / "models" / "2-plain")
    own = demo_story._fine_tune
    monkeypatch.setattr(demo_story, "_fine_tune", lambda *words: (_ for _ in ()).throw(HoldfastError("disk full")))
    with pytest.raises(HoldfastError, match="version 2, plain: disk full"):
        demo_story.run_demo(tmp_path, TINY, lambda name, event: None, Cancellation())
    monkeypatch.setattr(demo_story, "_fine_tune", own)
    record = demo_story.run_demo(tmp_path, TINY, lambda name, event: None, Cancellation())
    assert record["scores"] == finished[1]["scores"]  # one thread each: the same numbers again


def test_a_cancelled_demo_is_an_interruption(finished, tmp_path):
    from holdfast.cli.demo_story import run_demo
    from holdfast.train.engine import Cancellation

    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "demo.json").write_text(json.dumps({"settings": asdict(TINY)}))
    shutil.rmtree(tmp_path / "models")
    cancel = Cancellation()
    cancel.cancel()
    with pytest.raises(KeyboardInterrupt):
        run_demo(tmp_path, TINY, lambda name, event: None, cancel)
    assert "scores" not in json.loads((tmp_path / "demo.json").read_text())


@pytest.mark.slow
@pytest.mark.ci
def test_as_it_is(holdfast_json, tmp_path):
    """At full size: the index suffers from plain fine-tuning, and a bridge and training each help."""
    scores = holdfast_json("demo", "--train", "--out", tmp_path / "demo")["scores"]
    found = {name: score["value"] for name, score in scores.items()}
    assert found["plain"] <= found["version_1"] - 0.05
    assert found["plain_bridge"] >= found["plain"] + 0.05
    assert found["holdfast"] >= found["plain"] + 0.03
    assert found["reembedded"] >= found["version_1"] + 0.05
