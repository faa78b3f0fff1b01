"""``holdfast check --bridge`` and ``--mixed`` as a release pipeline sees them."""

import json
import re

import numpy as np
import pytest

from holdfast.bridges import Bridge

CLASSES, ITEMS, QUERIES = 10, 200, 150


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Files of an old model (16 numbers) and of a better new one (20 numbers), a bridge, and a mixed gallery."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    centres = 3 * rng.standard_normal((CLASSES, 12))
    labels = {"gallery": np.arange(ITEMS) % CLASSES, "queries": np.arange(QUERIES) % CLASSES}
    items = {name: centres[y] + 2 * rng.standard_normal((len(y), 12)) for name, y in labels.items()}
    for model, dim, noise in (("old", 16, 1.5), ("new", 20, 0.3)):
        turn = np.linalg.qr(rng.standard_normal((dim, dim)))[0][:12]
        for name, rows in items.items():
            features = rows @ turn + noise * rng.standard_normal((len(rows), dim))
            ids = np.array([f"{name}/{i}" for i in range(len(rows))])
            np.savez(f"{name}_{model}.npz", features=features, labels=labels[name], ids=ids)
            np.savez(f"bare_{name}_{model}.npz", features=features, ids=ids)
    old, new = (np.load(f"gallery_{model}.npz") for model in ("old", "new"))
    Bridge.fit(new=new["features"], old=old["features"], kind="rotation").save("bridge")
    for name, part, rows in (("part1", old, slice(0, 100)), ("part2", new, slice(100, ITEMS))):
        np.savez(f"{name}.npz", **{key: part[key][rows] for key in ("features", "labels", "ids")})
    return tmp_path


def words(*more, prefix=""):
    files = [f"{prefix}{name}.npz" for name in ("gallery_old", "queries_old", "queries_new")]
    named = [word for pair in zip(("--gallery", "--queries-old", "--queries-new"), files) for word in pair]
    return ["check", *named, *more]


MIXED = ["check-mixed", "--part", "part1.npz,bridge", "--part", "part2.npz"]
MIXED += ["--queries-new", "queries_new.npz", "--gallery-new", "gallery_new.npz"]


def test_a_bridge_makes_models_of_two_sizes_comparable(folder, holdfast):
    assert "a bridge between the two is needed" in json.loads(holdfast(*words("--json"), status=2))["reason"]
    text = holdfast(*words("--bridge", "bridge", "--gallery-new", "gallery_new.npz", "--page", "page.html"))
    said = " ".join(text.split())
    answers = r"Better than keeping the old model: (?:yes|not shown)\. At most 1 point lost: yes \(95 %\)\. "
    assert re.match(answers + r"Keeps \d+\.\d % of re-embedding \(95 % interval \d+\.\d to \d+\.\d\)\.", said)
    assert "Bridge: rotation, fitted on 200 pairs." in text
    for line in text.splitlines():
        assert len(line) <= 80 or line.startswith("Page: "), line
    page = (folder / "page.html").read_text()
    assert "Bridge: rotation" in page
    assert "new queries through the bridge, old gallery" in page
    found = json.loads(holdfast(*words("--bridge", "bridge", "--json")), parse_constant=pytest.fail)
    assert found["bridge"]["kind"] == "rotation"
    assert found["without_bridge"] is None


def test_without_labels(folder, holdfast):
    bare = words("--bridge", "bridge", "--gallery-new", "bare_gallery_new.npz", prefix="bare_")
    text = holdfast(*bare, status=3)
    assert text.startswith("Not judged: ")
    assert "It rewards imitating the new model" in " ".join(text.split())
    text = holdfast(*words("--bridge", "bridge", prefix="bare_"), status=3)
    assert "Old and bridged new queries share" in text


def test_a_mixed_gallery(folder, holdfast):
    text = holdfast(*MIXED, "--page", "page.html", status=3)
    assert text.startswith("Not judged: the old model's vectors")
    assert "Keeps 9" in text
    for line in text.splitlines():
        assert len(line) <= 80 or line.startswith("Page: "), line
    found = json.loads(holdfast(*MIXED, "--json", status=3), parse_constant=pytest.fail)
    assert (found["kind"], found["verdict"], found["exit_code"]) == ("mixed", "not judged", 3)
    first, second = found["versions"]
    assert (first["items"], second["items"]) == (100, 100)
    assert first["bridge"]["kind"] == "rotation"
    assert second["bridge"] is None
    assert first["raw"]["exposure"]["1"]["value"] == 0
    assert first["mixed"]["exposure"]["10"]["value"] > 0.5
    for shown in (text, (folder / "page.html").read_text()):
        assert f"{100 * found['kept']['value']:.2f}" in shown
        assert f"{first['mixed']['exposure']['1']['value']:.2f} (" in shown
    holdfast(*MIXED, "--page", "comment.md", status=3)
    assert "| 1, raw |" in (folder / "comment.md").read_text()


def test_a_mixed_gallery_against_the_old_model(folder, holdfast):
    keeping = ["--gallery-old", "gallery_old.npz", "--queries-old", "queries_old.npz"]
    text = " ".join(holdfast(*MIXED, *keeping).split())
    assert text.startswith("Better than keeping the old model: ")
    assert "hit@1, keep the old model" in text
    holdfast(*MIXED, *keeping, "--min-exposure", "1", status=1)
    holdfast(*MIXED, *keeping[:2], status=2)


def test_gates_of_a_mixed_gallery(folder, holdfast):
    reached = holdfast(*MIXED, "--min-exposure", "0.3")
    assert reached.startswith("Asked for: reached (")
    found = json.loads(holdfast(*MIXED, "--min-exposure", "1", "--json", status=1))
    assert found["gates"] in ("not shown", "missed")


def test_bad_input_is_one_line_and_two(folder, holdfast, command):
    """What the command line refuses itself; Python's refusals are tested with ``check_mixed``."""
    cases = [
        (words("--bridge", "nowhere"), "nowhere: no bridge here"),
        ([*MIXED[:1], "--part", "part2.npz,", *MIXED[5:]], "write it as FILE or FILE,BRIDGE"),
        ([*MIXED, "--min-exposure", "80"], "min-exposure is a share of 1"),
    ]
    for given, reason in cases:
        found = json.loads(holdfast(*given, "--json", status=2))
        assert reason in found["reason"]
        assert (found["verdict"], found["exit_code"]) == ("not judged", 2)
    done = command(*cases[1][0], cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("holdfast: ")
