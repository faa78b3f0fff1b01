"""``holdfast gallery``: from an empty folder through an upgrade, as text and as JSON."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from holdfast import Encoder, Gallery, Preprocess, build_backbone
from holdfast.cli.version_text import describe_numbers
from holdfast.core.errors import HoldfastError

pytest.importorskip("qdrant_edge")


@pytest.fixture
def shown(tmp_path):
    """Twelve small pictures in folders of three classes, and a file that is none."""
    for number in range(12):
        file = tmp_path / "shown" / f"kind{number % 3}" / f"{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(30 * number).resize((16, 16)).save(file)
    (tmp_path / "shown" / "broken.jpg").write_bytes(b"not an image")
    return tmp_path / "shown"


def test_through_an_upgrade(holdfast, holdfast_json, tiny_run, shown, tmp_path):
    models, folder = tiny_run / "models", tmp_path / "g"
    made = holdfast_json("gallery", "create", folder, "--model", models / "01")
    assert (made["engine"], made["version"]["number"], made["version"]["slots"]) == ("embedded", 1, 6)
    found = json.loads(
        holdfast("gallery", "add", folder, shown, "--labels-from-folders", "--meta", "shop=north", "--json", status=1)
    )
    assert found["added"] == 12
    assert [bad["id"] for bad in found["refused"]] == ["broken.jpg"]

    assert "version 2 is" in holdfast("gallery", "register", folder, models / "02", "--force")
    single = shown / "kind0" / "00.png"
    assert "1 added, 0 refused" in holdfast("gallery", "add", folder, single, "--label", "new", "--meta", "price=3")

    hits = holdfast_json("gallery", "search", folder, single, "--k", "13")
    assert len(hits) == 13
    assert hits[0]["id"] == "00.png"
    assert hits[0]["score"] == pytest.approx(1, abs=1e-5)
    assert hits[0] == {**hits[0], "version": 2, "label": "new", "metadata": {"price": 3}, "path": str(single)}
    assert {hit["version"] for hit in hits} == {1, 2}
    assert [hit["score"] for hit in hits] == sorted((hit["score"] for hit in hits), reverse=True)

    some = holdfast_json("gallery", "search", folder, single, "--where", "shop=north", "--where", "label=kind1")
    assert sorted(hit["id"] for hit in some) == [f"kind1/{n:02d}.png" for n in (1, 4, 7, 10)]
    cheap = holdfast_json("gallery", "search", folder, single, "--where", 'price={"lt": 4}')
    assert [hit["id"] for hit in cheap] == ["00.png"]
    for versions, ids in (("2", 1), ("1", 12), ("1,2", 13)):
        among = holdfast_json("gallery", "search", folder, single, "--k", "13", "--indexed-by", versions)
        assert len(among) == ids
        assert among == [hit for hit in hits if str(hit["version"]) in versions.split(",")]
    assert "kind0/00.png" in holdfast("gallery", "search", folder, "--id", "00.png", "--k", "12", "--exact")

    assert holdfast_json("gallery", "delete", folder, "00.png") == {"deleted": ["00.png"], "unknown": []}
    holdfast("gallery", "delete", folder, "00.png", status=1)
    rows = holdfast_json("gallery", "versions", folder)
    assert [(row["number"], row["items"]) for row in rows] == [(1, 12), (2, 0)]
    table = holdfast("gallery", "versions", folder)
    assert "on 1:" in table
    assert "…" not in table
    assert f"version 1 is from {tiny_run / 'models' / '01'}\n" in table  # whole, however long
    found = holdfast_json("gallery", "stats", folder)
    assert (found["items"], found["labelled"], found["fields"]) == (12, 12, ["label", "price", "shop"])
    assert "12 items, 12 with a label" in holdfast("gallery", "stats", folder)


def test_errors_say_what_to_do(holdfast, command, tiny_run, tmp_path):
    done = command("gallery", "search", tmp_path, "x.png")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"holdfast: {tmp_path}: no gallery here; make one with holdfast gallery create")
    folder = tmp_path / "g"
    holdfast("gallery", "create", folder, "--model", tiny_run / "models" / "01")
    for words, reason in (
        (("create", folder, "--model", tiny_run / "models" / "01"), "already there"),
        (("register", folder, tiny_run / "models" / "01"), "version 1 already"),
        (("register", folder, tmp_path), "no model here; give a folder with config.json"),
        (("add", folder, tmp_path / "empty"), "no images there"),
        (("add", folder, tmp_path, "--meta", "shop"), "FIELD=VALUE"),
        (("search", folder), "give the image to look for, or --id ID"),
        (("search", folder, tmp_path / "none.png"), "no such image file"),
        (("search", folder, "--id", "nobody"), "no item 'nobody'"),
        (("search", folder, "--id", "nobody", "--indexed-by", "one"), "--indexed-by must be whole numbers"),
        (("search", folder, "--id", "nobody", "--indexed-by", "2"), "unknown version '2'; known: 1"),
        (("search", folder, "--id", "nobody", "--where", "version=1"), "--indexed-by"),
    ):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(HoldfastError, match=reason):
            holdfast("gallery", *words)


def test_the_gallery_outlives_the_run(holdfast_json, tiny_run, shown, tmp_path):
    copied: Path = tmp_path / "model"
    shutil.copytree(tiny_run / "models" / "01", copied)
    holdfast_json("gallery", "create", tmp_path / "g", "--model", copied)
    holdfast_json("gallery", "add", tmp_path / "g", shown / "kind0")
    shutil.rmtree(copied)
    assert len(holdfast_json("gallery", "search", tmp_path / "g", shown / "kind0" / "03.png")) == 4


@pytest.mark.parametrize(
    ("numbers", "text"), [([1], "1"), ([2, 1], "1, 2"), ([1, 2, 3], "1 to 3"), ([1, 3, 4, 5, 8], "1, 3 to 5, 8")]
)
def test_versions_in_a_row_are_told_by_the_ends(numbers, text):
    assert describe_numbers(numbers) == text


OWN_CODE = """
from torch import nn


def flat(side=16):
    network = nn.Sequential(nn.Flatten(), nn.Linear(side * side, 8))
    network.feature_dim = 8
    return network
"""


def test_a_network_of_ones_own_code(process, holdfast, shown, tmp_path, monkeypatch):
    """The code that a model folder names is imported only if it is named on the command line or in the environment."""
    (tmp_path / "flat_net.py").write_text(OWN_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    preprocess = Preprocess(size=16, mean=(0.5,), std=(0.5,), colour="grey")
    Encoder(build_backbone("flat_net:flat", side=16), preprocess=preprocess).save_pretrained(tmp_path / "model")
    (shown / "broken.jpg").unlink()

    refused = process("gallery", "create", "g", "--model", "model", cwd=tmp_path)
    assert refused.returncode == 1
    assert "run holdfast --code flat_net:flat" in refused.stderr
    made = process("--code", "flat_net:flat", "gallery", "create", "g", "--model", "model", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    added = process("gallery", "add", "g", "shown", cwd=tmp_path, HOLDFAST_CODE="flat_net:flat")
    assert "12 added" in added.stdout
    with pytest.raises(HoldfastError, match="--code flat_net: must be written as"):
        holdfast("--code", "flat_net", "gallery", "stats", tmp_path / "g")


def test_conditions_of_one_field(holdfast, holdfast_json, tiny_run, shown, tmp_path):
    folder = tmp_path / "g"
    holdfast("gallery", "create", folder, "--model", tiny_run / "models" / "01")
    image = shown / "kind0" / "00.png"
    for label, price in (("3", 1), ("4", 5), ("true", 9)):
        other = tmp_path / f"{price}.png"
        shutil.copyfile(image, other)
        holdfast("gallery", "add", folder, other, "--label", label, "--meta", f"price={price}")

    def found(*conditions):
        words = [word for one in conditions for word in ("--where", one)]
        return sorted(hit["label"] for hit in holdfast_json("gallery", "search", folder, image, *words))

    assert found("label=3") == ["3"]  # a label is text, also if it looks like a number
    assert found("label=true") == ["true"]
    assert found('label=["3", "4"]') == ["3", "4"]
    assert found('price={"gt": 1}', 'price={"lt": 9}') == ["4"]
    for words in (("label=3", "label=4"), ("price=1", 'price={"lt": 9}'), ('price={"lt": 5}', 'price={"lt": 9}')):
        with pytest.raises(HoldfastError, match="has a condition already"):
            found(*words)
    with pytest.raises(HoldfastError, match="price is given twice"):
        holdfast("gallery", "add", folder, image, "--meta", "price=1", "--meta", "price=2")


def test_a_stopped_rollback_is_not_reported_as_finished(holdfast, tiny_run, shown, tmp_path, monkeypatch):
    folder = tmp_path / "g"
    holdfast("gallery", "create", folder, "--model", tiny_run / "models" / "01")
    stopped = {"version": 2, "newest": 1, "moved": 3, "dropped": 0, "finished": False}
    monkeypatch.setattr(Gallery, "rollback", lambda *given, **options: stopped)
    text = holdfast("gallery", "rollback", folder, status=1)
    assert "was removed" not in text
    with pytest.raises(HoldfastError, match="--drop does not go with --cancel"):
        holdfast("gallery", "rollback", folder, "--cancel", "--drop")
