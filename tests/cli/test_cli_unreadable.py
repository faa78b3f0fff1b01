"""``start``, ``update`` and ``gallery add`` on folders with files that cannot be used, or named like splits."""

import csv
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from holdfast.cli import app

SETTINGS = ("backbone.name=small", "backbone.width=8", "train.epochs=1", "data.size=16")
SMALL = [*(word for one in SETTINGS for word in ("--set", one)), "--device", "cpu"]


def photos(top, *classes, first=0):
    """Eight random images of each class, no two alike."""
    for number, name in enumerate(classes, start=first):
        (top / name).mkdir(parents=True)
        for row in range(8):
            pixels = np.random.default_rng(100 * number + row).integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(top / name / f"{row}.png")
    return top


def spoil(top):
    """Damage two images, and add a class without images and a name with a line break; how many problems."""
    (top / "bus" / "0.png").write_bytes(b"")
    whole = (top / "bus" / "1.png").read_bytes()
    (top / "bus" / "1.png").write_bytes(whole[: len(whole) // 2])
    (top / "empty").mkdir()
    shutil.copy(top / "tram" / "7.png", top / "tram" / "line\nbreak.png")
    (top / "tram" / "notes.txt").write_text("")
    return 4


def run(*words):
    """What a verb printed on stdout and stderr, and how it ended: its exit status, or the error as one line."""
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [str(word) for word in words])
    failed = done.exception is not None and not isinstance(done.exception, SystemExit)
    return done.stdout, done.stderr, str(done.exception) if failed else done.exit_code


def rows_of(file):
    with file.open(encoding="utf-8", newline="") as stream:
        return {row["path"]: row["reason"] for row in csv.DictReader(stream)}


def test_start_lists_all_problems_and_goes_on_without_them(tmp_path):
    top = photos(tmp_path / "photos", "bus", "train", "tram")
    count = spoil(top)
    _, _, error = run("start", "--data", top, "--out", tmp_path / "1", *SMALL)
    assert error.startswith(f"{top}: {count} problems among 26 files (list: {tmp_path / '1.unreadable.csv'}): ")
    assert all(part in error for part in ("bus/0.png: ", "bus/1.png: ", "empty: no images", r"tram/line\nbreak.png: "))
    assert error.endswith("pass --skip-unreadable (skip_unreadable=True in Python) to go on without it")
    listed = rows_of(tmp_path / "1.unreadable.csv")
    assert set(listed) == {f"{top}/{name}" for name in ("bus/0.png", "bus/1.png", "empty", r"tram/line\nbreak.png")}
    assert not (tmp_path / "1").exists()

    said, told, status = run("start", "--data", top, "--out", tmp_path / "1", "--skip-unreadable", *SMALL)
    assert status == 0
    assert "Files and folders skipped: 4; list:" in said
    assert "1 class is left out, because none of its images can be used: empty" in told.replace("\n", " ")
    assert "train is read as a class" in told
    assert rows_of(tmp_path / "1.unreadable.csv") == listed
    words = ["start", "--data", top, "--out", tmp_path / "1", "--skip-unreadable", *SMALL, "--json"]
    info = json.loads(run(*words)[0])  # complete already
    assert sorted(info["classes"]) == ["bus", "train", "tram"]
    assert info["data"]["skipped"] == 4
    assert info["skipped_list"] == str(tmp_path / "1.unreadable.csv")


def test_update_collects_the_problems_of_all_its_folders(tmp_path):
    first = photos(tmp_path / "first", "bus", "tram")
    assert run("start", "--data", first, "--out", tmp_path / "1", *SMALL)[2] == 0
    assert not (tmp_path / "1.unreadable.csv").exists()
    second, third = (
        photos(tmp_path / "second", "car", "van", first=5),
        photos(tmp_path / "third", "bus", "car", first=9),
    )
    (second / "car" / "0.png").write_bytes(b"no image")
    (third / "bus" / "0.png").write_bytes(b"no image")
    words = ["update", "--from", tmp_path / "1", "--data", second, "--check-on", third, "--out", tmp_path / "2",
             "--device", "cpu"]  # fmt: skip
    error = run(*words)[2]
    assert "2 problems among 32 files" in error
    assert set(rows_of(tmp_path / "2.unreadable.csv")) == {f"{second}/car/0.png", f"{third}/bus/0.png"}
    said, _, status = run(*words, "--skip-unreadable", "--json")
    assert status == 0
    assert json.loads(said)["data"]["skipped"] == 2


def test_split_folders(tmp_path):
    top = photos(tmp_path / "photos", "train", "test")
    words = ["start", "--data", top, "--out", tmp_path / "1", *SMALL]
    assert "If train is a class, pass --split-folders no" in run(*words)[2]
    assert "must be yes or no, got 'maybe'" in run(*words, "--split-folders", "maybe")[2]
    said, _, status = run(*words, "--split-folders", "no", "--json")
    assert status == 0
    assert json.loads(said)["classes"] == ["test", "train"]
    table = tmp_path / "list.csv"
    table.write_text("path,label\n1.png,a\n", encoding="utf-8")
    words = ["start", "--data", table, "--out", tmp_path / "2", *SMALL]
    assert "is for folders, and this is a file" in run(*words, "--split-folders", "yes")[2]


def test_gallery_add_follows_the_same_rules(tiny_run, tmp_path):
    pytest.importorskip("qdrant_edge")
    gallery = tmp_path / "g"
    create = run("gallery", "create", gallery, "--model", tiny_run / "models" / "01")
    assert create[2] == 0
    top = photos(tmp_path / "photos", "bus", "tram")
    spoil(top)
    (top / os.fsdecode(b"\xff.jpg")).write_bytes(b"")
    said, told, status = run("gallery", "add", gallery, top)
    assert status == 1
    assert "14 added, 4 refused, 1 other files passed over" in said
    assert f"list of files with reasons: {tmp_path / 'g.unreadable.csv'}" in said
    assert told.count("refused: ") == 4
    listed = rows_of(tmp_path / "g.unreadable.csv")
    assert set(listed) == {
        f"{top}/{name}" for name in ("bus/0.png", "bus/1.png", r"tram/line\nbreak.png", r"\udcff.jpg")
    }
    assert listed[f"{top}/bus/0.png"] == "not readable as an image (the file is empty)"
    said, told, status = run("gallery", "add", gallery, top, "--skip-unreadable")
    assert status == 0
    assert "14 added, 4 skipped" in said
    assert "refused" not in told
    found = json.loads(run("gallery", "add", gallery, top, "--skip-unreadable", "--json")[0])
    assert (found["added"], len(found["refused"]), found["list"]) == (14, 4, str(tmp_path / "g.unreadable.csv"))
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "1.png").write_bytes(b"no image")
    assert run("gallery", "add", gallery, bad, "--skip-unreadable")[2] == 1  # nothing was added
    assert "goes with images" in run("gallery", "add", gallery, tmp_path / "v.npz", "--skip-unreadable")[2]
