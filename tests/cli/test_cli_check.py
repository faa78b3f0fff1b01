"""``holdfast check`` as a release pipeline sees it: exit status, JSON, Markdown, page, 80 columns."""

import json
import re

import numpy as np
import pytest


def features(labels, noise, seed):
    centres = np.random.default_rng(7).standard_normal((10, 12))
    z = centres[labels] + noise * np.random.default_rng(seed).standard_normal((len(labels), 12))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture
def files(tmp_path):
    labels, gallery_labels = np.arange(300) % 10, np.arange(80) % 10
    made = {
        "gallery": (gallery_labels, 1.0, 1),
        "old": (labels, 1.5, 2),
        "new": (labels, 0.8, 3),
        "anew": (gallery_labels, 0.5, 4),
    }
    for name, (y, noise, seed) in made.items():
        ids = (
            np.array([f"<{name[0]}{i}>|@x" for i in range(len(y))])
            if name in ("gallery", "anew")
            else np.arange(len(y))
        )
        np.savez(tmp_path / f"{name}.npz", features=features(y, noise, seed), labels=y, ids=ids)
    with np.load(tmp_path / "old.npz") as pack:  # the same directions: a model that changes nothing
        np.savez(tmp_path / "twice.npz", **{**pack, "features": 2 * pack["features"]})
    return {name: tmp_path / f"{name}.npz" for name in (*made, "twice")}


def words(files, old="old", new="new"):
    return ["check", "--gallery", files["gallery"], "--queries-old", files[old], "--queries-new", files[new]]


BETTER = "Better than keeping the old model: "


def said(text):
    return " ".join(text.split())


def test_exit_status(files, holdfast):
    assert said(holdfast(*words(files), status=0)).startswith(f"{BETTER}yes. At most 1 point lost: yes (95 %).")
    worse = said(holdfast(*words(files, "new", "old"), status=1))
    assert worse.startswith(f"{BETTER}no. At most 1 point lost: no (95 %).")
    same = words(files, "old", "twice")
    told = said(holdfast(*same, "--max-loss", "0.05", status=0))
    assert told.startswith(f"{BETTER}not shown. At most 5 points lost: yes (95 %).")
    told = said(holdfast(*same, "--max-loss", "0.001", status=1))
    assert told.startswith(f"{BETTER}not shown. At most 0.1 points lost: not shown (95 %).")
    assert said(holdfast(*same, "--max-loss", "0", status=1)).startswith(
        f"{BETTER}not shown. A gain: not shown (95 %)."
    )


def test_files_in_each_others_place_are_two(files, holdfast, tmp_path):
    found = json.loads(holdfast(*words(files, "old", "old"), "--json", status=2))
    assert "the old and the new queries are the same vectors" in found["reason"]
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 12)))[0]
    with np.load(files["new"]) as pack:
        np.savez(tmp_path / "strange.npz", **{**pack, "features": pack["features"] @ turn})
    files["strange"] = tmp_path / "strange.npz"
    found = json.loads(holdfast(*words(files, "strange", "new"), "--json", status=2))
    assert "were the files of the two models exchanged?" in found["reason"]
    holdfast(*words(files, "new", "strange"), status=1)


def test_json_says_which(files, holdfast):
    strict = [*words(files, "old", "twice"), "--max-loss", "0", "--json"]
    found = json.loads(holdfast(*strict, status=1), parse_constant=pytest.fail)
    assert (found["verdict"], found["exit_code"], found["loss"]["answer"]) == ("not shown", 1, "not shown")
    found = json.loads(holdfast(*words(files), "--gallery-new", files["anew"], "--json", "--score", "mAP"))
    assert found["score"] == "mAP"
    assert found["gain"]["low"] > 0
    assert len(found["changes"]["lost_queries"]) == found["changes"]["lost"]


def test_bad_input_is_two(files, tmp_path, holdfast, command):
    missing = [*words(files)[:-1], tmp_path / "none.npz"]
    found = json.loads(holdfast(*missing, "--json", status=2))
    assert (found["verdict"], found["exit_code"]) == ("not judged", 2)
    assert "none.npz: no such file" in found["reason"]
    done = command(*missing)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"holdfast: {tmp_path / 'none.npz'}: no such file\n"
    for wrong in (
        ["check"],
        ["check-history", tmp_path, "--model", "one,two"],
        ["check", "--gallery", files["gallery"]],
        [*words(files), "--page", tmp_path / "page.txt"],
        [*words(files), "--score", "best"],
        ["check-history", "--model", "one"],
        ["check-history"],
        [*words(files), "--id", "name"],
    ):
        holdfast(*wrong, status=2)


def test_without_judgements_is_three(files, tmp_path, holdfast):
    """And nothing that is printed can be taken for an answer."""
    names = ("gallery", "old", "new", "anew")
    for name in names:
        np.save(tmp_path / f"{name}.npy", np.load(files[name])["features"])
    bare = {name: tmp_path / f"{name}.npy" for name in names}
    again = ["--gallery-new", bare["anew"]]
    for more in ([], again, [*again, "--min-agreement", "0.01"], [*again, "--min-agreement", "0.99"]):
        status = {(): 3, ("0.01",): 0, ("0.99",): 1}[tuple(more[3:])]
        html, comment = tmp_path / "page.html", tmp_path / "page.md"
        for form in ([], ["--json"], ["--page", html, "--page", comment]):
            text = holdfast(*words(bare), *more, *form, status=status)
            if "--json" in form:
                record = json.loads(text)
                assert (record["verdict"], record["better"], record["loss"], record["gain"]) == (
                    "not judged",
                    *[None] * 3,
                )
                text = record["reason"]
            for shown in (text, *(page.read_text() for page in (html, comment) if form and page in form)):
                body = shown[shown.index("<body>") :] if "<body>" in shown else shown
                assert not re.search(r"\b(yes|better|compatible|helps)\b", body, re.IGNORECASE), body
    assert holdfast(*words(bare), status=3).startswith("Not judged: ")
    assert holdfast(*words(bare), *again, "--min-agreement", "0.01").startswith("Agreement of at least 1 %: reached.")
    for wrong in ([*words(bare), "--min-agreement", "0.5"], [*words(files), *again, "--min-agreement", "0.5"]):
        holdfast(*wrong, status=2)
    pair = f"{bare['new']},{bare['gallery']}"
    found = json.loads(holdfast("check-history", "--model", pair, "--model", pair, "--json", status=3))
    assert (found["verdict"], found["exit_code"]) == ("not judged", 3)


@pytest.mark.parametrize("more", [[], ["--score", "hit@3"]])
def test_eighty_columns(more, files, tiny_run, holdfast):
    text = holdfast(*words(files), "--gallery-new", files["anew"], *more)
    assert "do not cover another" in " ".join(text.split())
    history = holdfast("check-history", tiny_run, status=1)
    for line in [*text.splitlines(), *history.splitlines()]:
        assert len(line) <= 80, line


def test_a_run_and_a_list_of_models(files, tiny_run, holdfast):
    recorded = json.loads((tiny_run / "metrics.json").read_text())["protocols"]["instance"]
    found = json.loads(holdfast("check-history", tiny_run, "--json", status=1))
    assert found["kind"] == "history"
    assert found["AA"] == pytest.approx(recorded["AA"])
    models = ["--model", f"{files['old']},{files['gallery']}", "--model", f"{files['new']},{files['anew']}"]
    # The two galleries name their items differently, so they are no history of one gallery.
    assert "lacks 80 ids" in json.loads(holdfast("check-history", *models, "--json", status=2))["reason"]
    models[-1] = f"{files['new']},{files['gallery']}"
    told = said(holdfast("check-history", *models))
    where = "on every older gallery"
    assert told.startswith(f"{BETTER}yes, {where}. At most 1 point lost: yes, {where} (95 %).")


def test_page_and_markdown(files, tmp_path, tiny_run, holdfast):
    page, comment = tmp_path / "report.html", tmp_path / "report.md"
    holdfast(*words(files), "--page", page, "--page", comment)
    text = comment.read_text()
    assert text.startswith(f"### {BETTER}yes. At most 1 point lost: yes (95 %).\n")
    assert "| **gain over keeping, points** |" in text
    assert "another training seed" in text
    html = page.read_text()
    assert f"{BETTER}yes. At most 1 point lost: yes (95 %)." in html
    assert "another training seed" in html
    holdfast("check-history", tiny_run, "--page", comment, status=1)
    assert "| query model" in comment.read_text()


def test_a_crash_is_no_verdict(files, holdfast, monkeypatch, capsys):
    def broken(*args, **options):
        raise RuntimeError("out of memory")

    monkeypatch.setattr("holdfast.checks.check", broken)
    found = json.loads(holdfast(*words(files), "--json", status=2))
    assert found["reason"] == "the check itself failed (RuntimeError: out of memory)"
    assert found["exit_code"] == 2


def test_a_comment_says_what_is_wrong(files, tmp_path, holdfast):
    comment = tmp_path / "report.md"
    holdfast(*words(files)[:-1], tmp_path / "none.npz", "--page", comment, status=2)
    text = comment.read_text()
    assert text.startswith("### Not judged: ")
    assert "none.npz: no such file" in text


@pytest.mark.parametrize("models", [7, 9, 12])
def test_a_long_history_fits_the_screen(models, files, holdfast):
    pair = f"{files['new']},{files['gallery']}"
    text = holdfast("check-history", *["--model", pair] * models, "--max-loss", "0", status=1)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "…" not in text
    assert ("query model" in text) is (models < 8)


def test_a_lost_query_with_long_ids_still_says_what_is_found_now(files, holdfast, tmp_path):
    for name in ("gallery", "old", "new"):
        with np.load(files[name]) as held:
            ids = np.array([f"photos/a/long/way/down/{name}/picture-{i:05d}.jpg" for i in range(len(held["labels"]))])
            kept = dict(held) | {"ids": ids if name == "gallery" else np.char.replace(ids, name, "asked")}
        np.savez(files[name], **kept)
    text = holdfast(*words(files, "new", "old"), status=1)
    assert "now photos/a/long/way/down/gallery/picture-" in said(text)
    assert max(len(line) for line in text.splitlines()) <= 80


def test_columns_of_the_files_are_named(files, tmp_path, holdfast):
    """Arrays of other names give the same answer; a wrong name is answered by those that are there."""
    for name in ("gallery", "old", "new"):
        with np.load(files[name]) as pack:
            np.savez(tmp_path / f"{name}-named.npz", emb=pack["features"], kind=pack["labels"], sku=pack["ids"])
    named = {name: tmp_path / f"{name}-named.npz" for name in files}
    columns = ("--id", "sku", "--vector", "emb", "--label", "kind")
    usual, found = (json.loads(holdfast(*call, "--json")) for call in (words(files), (*words(named), *columns)))
    assert found["gain"] == usual["gain"]
    refused = json.loads(holdfast(*words(named), *columns[2:], "--id", "id", "--json", status=2))
    assert "gallery-named.npz: no column id (--id); it has emb, kind, sku" in refused["reason"]
    url = ["check", "--gallery", "postgresql://host/shop", *words(files)[3:]]
    assert "name the table or collection, as in URL#TABLE" in json.loads(holdfast(*url, "--json", status=2))["reason"]
