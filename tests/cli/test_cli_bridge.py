"""``holdfast bridge`` as a user calls it: verdict, exit status, what is written, and what is refused."""

import json
import re

import numpy as np
import pytest

from holdfast.bridges import Bridge, IndexMap
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import with_options

ITEMS = 700


@pytest.fixture
def files(tmp_path):
    """Items of 10 classes embedded by an old model (16 numbers), a turned one, a similar one and an unrelated one."""
    rng = np.random.default_rng(0)
    labels = np.arange(ITEMS) % 10
    items = 3 * rng.standard_normal((10, 12))[labels] + rng.standard_normal((ITEMS, 12))
    old = items @ np.linalg.qr(rng.standard_normal((16, 16)))[0][:12]
    made = {
        "old": old,
        "new": items @ np.linalg.qr(rng.standard_normal((20, 20)))[0][:12] + 0.2 * rng.standard_normal((ITEMS, 20)),
        "turned": old @ np.linalg.qr(rng.standard_normal((16, 16)))[0],
        "similar": old + 0.02 * rng.standard_normal(old.shape),
        "unrelated": rng.standard_normal((ITEMS, 16)),
    }
    ids = np.array([f"shelf/{i}.png" for i in range(ITEMS)])
    for name, features in made.items():
        np.savez(tmp_path / f"{name}.npz", features=features, ids=ids)
    np.savez(tmp_path / "labelled.npz", features=made["old"], ids=ids, labels=labels)
    return {name: tmp_path / f"{name}.npz" for name in (*made, "labelled")}


@pytest.fixture
def call(files, tmp_path, holdfast):
    def fit(new, *more, old="old", status=3):
        words = ["bridge", "--old", files[old], "--new", files[new], "--out", tmp_path / "out"]
        return holdfast(*words, *more, status=status)

    return fit


def test_a_bridge_that_helps_is_written(call, files, tmp_path):
    text = call("new")
    assert text.startswith("Provisional: whether people find more than with the old model was not judged.")
    assert "Agreement: bridged queries show " in " ".join(text.split())
    assert "Would more pairs help? " in text
    assert "Only " not in text
    assert "random hits" in text
    assert "classes that are in neither file may do worse" in " ".join(text.split())
    assert f"{tmp_path / 'out'}: written, kind " in " ".join(text.split())
    bridge = Bridge.load(tmp_path / "out")
    assert bridge.dims == (20, 16)
    assert bridge.evidence.pairs == ITEMS
    assert "rotation (centred)" in text
    assert "affine (ridge 0.1)" in text
    assert re.search(r"keep the old model +not measured", text)
    for candidate in bridge.evidence.candidates:
        numbers = [f"{100 * candidate.value:.1f}", f"{100 * candidate.nearest:.1f}", f"{candidate.exposure[10]:.2f}"]
        assert any(set(numbers) <= set(line.split()) for line in text.splitlines())


@pytest.mark.parametrize(
    ("new", "more"),
    [("new", ()), ("turned", ("--pairs", 40)), ("similar", ("--kind", "local", "--pairs", 100))],
)
def test_eighty_columns(new, more, files, holdfast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = holdfast("bridge", "--old", "old.npz", "--new", f"{new}.npz", "--out", "out", *more, status=3)
    assert ("Only " in text) == bool(more)
    for line in text.splitlines():
        assert len(line) <= 80, line


def test_json_is_one_object(call, tmp_path):
    found = json.loads(call("turned", "--pairs", 200, "--json"), parse_constant=pytest.fail)
    assert (found["verdict"], found["exit_code"], found["against_keeping"]) == ("provisional", 3, None)
    assert found["folder"] == str(tmp_path / "out")
    assert (found["evidence"]["pairs"], found["found"]) == (200, ITEMS)
    assert "without the bridge" in found["reason"]
    again = json.loads(call("turned", "--pairs", 200, "--json"))
    assert again["evidence"]["candidates"] == found["evidence"]["candidates"]
    assert found["evidence"]["searched"] == 60 + 24  # 200 of 700 items are pairs, so 2 of 7 searched are fitted ones


@pytest.fixture
def judged(tmp_path):
    """An old model that sees a part of what people look for, and two new ones: a better one, and a worse one."""
    rng = np.random.default_rng(0)
    labels = np.arange(900) % 30
    meant = 2 * rng.standard_normal((30, 12))[labels] + rng.standard_normal((900, 12))
    turn = np.linalg.qr(rng.standard_normal((24, 24)))[0]
    models = {
        "old": meant @ turn[:12, :16] + 1.5 * rng.standard_normal((900, 16)),
        "better": meant @ turn[12:],
        "worse": meant @ turn[12:] + 2.5 * rng.standard_normal((900, 24)),
    }
    for name, rows in models.items():
        for part, some in (("items", slice(0, 600)), ("queries", slice(600, 900))):
            ids = [f"{part}-{row}" for row in range(900)][some]
            np.savez(tmp_path / f"{name}-{part}.npz", features=rows[some], ids=ids, labels=labels[some])
            np.savez(tmp_path / f"{name}-{part}-bare.npz", features=rows[some], ids=ids)
    pairs = [(query, item) for query in range(600, 900) for item in range(600) if labels[query] == labels[item]]
    lines = [f"queries-{query},items-{item}" for query, item in pairs]
    (tmp_path / "relevance.csv").write_text("\n".join(["query_id,item_id", *lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize(("new", "verdict", "status"), [("better", "helps", 0), ("worse", "worse than keeping", 1)])
@pytest.mark.parametrize("by", ["labels", "relevance"])
def test_queries_judge_the_bridge_against_keeping(new, verdict, status, by, judged, holdfast):
    bare, more = ("", []) if by == "labels" else ("-bare", ["--relevance", judged / "relevance.csv"])
    words = ["bridge", "--old", judged / f"old-items{bare}.npz", "--new", judged / f"{new}-items{bare}.npz"]
    words += ["--queries-old", judged / f"old-queries{bare}.npz", "--queries-new", judged / f"{new}-queries{bare}.npz"]
    words += ["--out", judged / "out", *more]
    found = json.loads(holdfast(*words, "--json", status=status))
    assert (found["verdict"], found["exit_code"]) == (verdict, status)
    against = found["against_keeping"]
    assert against["queries"] == 300
    assert against["gain"]["value"] == pytest.approx(against["bridge"]["value"] - against["keep"]["value"])
    assert set(against["candidates"]) == {
        "keep the old model",
        "rotation",
        "rotation (centred)",
        "affine (ridge 0.1)",
        "local",
    }
    assert (judged / "out").exists() == (status == 0)
    text = " ".join(holdfast(*words, status=status).split())
    assert text.startswith("The bridge helps" if status == 0 else "Keep the old model")
    assert f"keep the old model {100 * against['keep']['value']:.1f} –" in text


def test_a_converted_index_is_judged_and_written(judged, holdfast):
    """A bridge of kind index: the stored vectors are mapped, into a file of its own."""
    words = ["bridge", "--old", judged / "old-items.npz", "--new", judged / "better-items.npz", "--kind", "index"]
    words += ["--queries-old", judged / "old-queries.npz", "--queries-new", judged / "better-queries.npz"]
    found = json.loads(holdfast(*words, "--out", judged / "out", "--json", status=0))
    assert (found["verdict"], found["kind"], found["side"], found["derived"]) == ("helps", "index", "index", True)
    before = (judged / "old-items.npz").read_bytes()
    holdfast("bridge", judged / "out", "--old", judged / "old-items.npz", "--out", judged / "converted.npz")
    assert (judged / "old-items.npz").read_bytes() == before
    converted, old = np.load(judged / "converted.npz"), np.load(judged / "old-items.npz")
    expected = IndexMap.load(judged / "out").transform(old["features"])
    assert np.allclose(converted["features"], expected, atol=1e-5)
    assert converted["ids"].tolist() == old["ids"].tolist()
    assert str(converted["model"]).startswith("derived: vectors of the old model converted")
    for more, reason in (
        (["--old", judged / "better-items.npz"], "24 numbers per vector, but the map takes 16"),
        ([], "name the index that it converts"),
    ):
        refused = holdfast("bridge", judged / "out", *more, "--out", judged / "no.npz", "--json", status=2)
        assert reason in json.loads(refused)["reason"]
    assert not (judged / "no.npz").exists()
    with pytest.raises(HoldfastError, match=r"IndexMap\.load reads the map of stored vectors"):
        Bridge.load(judged / "out")


def test_queries_without_judgements_join_the_pairs(judged, holdfast):
    words = ["bridge", "--old", judged / "old-items-bare.npz", "--new", judged / "better-items-bare.npz"]
    words += ["--queries-old", judged / "old-queries-bare.npz", "--queries-new", judged / "better-queries-bare.npz"]
    found = json.loads(holdfast(*words, "--out", judged / "out", "--json", status=3))
    assert (found["verdict"], found["evidence"]["pairs"], found["queries_fitted"]) == ("provisional", 900, 300)
    assert found["evidence"]["held_out"] == 180  # items only


def test_export(call, files, tmp_path, holdfast, holdfast_json):
    call("new", "--kind", "rotation")
    target = tmp_path / "bridge.npz"
    assert holdfast_json("bridge", tmp_path / "out", "--out", target)["file"] == str(target)
    assert set(np.load(target)) == {"weight", "bias", "slope", "offset"}
    assert "bridge.npz: " in " ".join(holdfast("bridge", tmp_path / "out", "--out", target).split())


def spoilt(file, target, **change):
    arrays = dict(np.load(file))
    for name, (rows, value) in change.items():
        arrays[name][rows] = value
    np.savez(target, **arrays)
    return target


def test_bad_input_is_one_line_and_nothing_is_written(files, tmp_path, command, holdfast):
    out = tmp_path / "out"
    nan = spoilt(files["new"], tmp_path / "nan.npz", features=(7, np.nan))
    zero = spoilt(files["new"], tmp_path / "zero.npz", features=([1, 2], 0))
    other = spoilt(files["new"], tmp_path / "other.npz", ids=(slice(None), np.arange(ITEMS)))
    start = ["bridge", "--old", files["old"]]
    done = command(*start, "--new", nan, "--out", out)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"holdfast: {nan}: 1 vector is not finite (row 7); leave it out\n"
    cases = [
        ([*start, "--new", zero, "--out", out], "2 vectors are zero (rows 1, 2)"),
        ([*start, "--new", other, "--out", out], "no id is in both"),
        ([*start, "--new", files["new"], "--out", out, "--pairs", 9], "9 pairs are too few for a bridge"),
        ([*start, "--new", files["new"], "--out", out, "--pairs", 0], "--pairs 0: at least 1 is needed"),
        ([*start, "--new", files["new"], "--out", out, "--kind", "magic"], "unknown kind of bridge 'magic'"),
        ([*start, "--new", files["new"], "--out", out, "--kind", "none"], "the two spaces cannot be compared"),
        ([*start, "--new", tmp_path / "none.npz", "--out", out], "none.npz: no such file"),
        ([*start, "--new", files["new"]], "--out is needed"),
        ([*start, "--new", files["new"], "--out", out, "--queries-old", files["old"]], "go together"),
        (
            [*start, "--new", files["new"], "--out", out, "--relevance", files["old"]],
            "names the right items of queries",
        ),
        ([*start, "--out", out], "give --old FILE and --new FILE; holdfast embed writes such files"),
        (["bridge", tmp_path / "none", "--out", tmp_path / "b.npz"], "no bridge here"),
        (["bridge", tmp_path / "none", "--kind", "local", "--out", tmp_path / "b.npz"], "BRIDGE exists: with it give"),
    ]
    for words, reason in cases:
        found = json.loads(holdfast(*words, "--json", status=2))
        assert reason in found["reason"]
        assert found["exit_code"] == 2
    assert not out.exists()


def test_a_folder_of_something_else_is_not_replaced(call, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "photo.png").write_bytes(b"")
    assert "exists and holds photo.png, which would be lost" in json.loads(call("new", "--json", status=2))["reason"]
    assert (tmp_path / "out" / "photo.png").exists()


def test_a_kind_is_written_with_its_options():
    assert with_options("none", {}) == "none"
    assert with_options("affine", {"ridge": 1.0}) == "affine (ridge 1)"
    assert with_options("rotation", {"centred": True, "rank": 256}) == "rotation (centred, rank 256)"
    assert with_options("rotation", {"centred": False, "rank": None}) == "rotation"


def test_columns_of_the_files_are_named(files, tmp_path, holdfast, holdfast_json):
    """One file is CSV, as pandas writes it; a wrong name is answered by those that are there."""
    lines = ["sku,emb"]
    for side in ("old", "new"):
        with np.load(files[side]) as pack:
            rows, ids = pack["features"][:300], pack["ids"][:300]
        if side == "old":
            np.savez(tmp_path / "named.npz", emb=rows, sku=ids, other=rows[:, :2])
        lines += [f'{name},"{row.tolist()}"' for name, row in zip(ids, rows)] if side == "new" else []
    (tmp_path / "named.csv").write_text("\n".join(lines))
    words = ["bridge", "--old", tmp_path / "named.npz", "--new", tmp_path / "named.csv", "--out", tmp_path / "named"]
    record = json.loads(holdfast(*words, "--id", "sku", "--vector", "emb", "--kind", "rotation", "--json", status=3))
    assert record["found"] == 300
    refused = json.loads(holdfast(*words, "--id", "sku", "--vector", "vector", "--json", status=2))
    assert refused["reason"].endswith("named.npz: no column vector (--vector); it has emb, sku, other")
