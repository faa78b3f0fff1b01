"""The timing scripts run, at toy size, and write what they print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


def bench(script, *arguments):
    command = [sys.executable, str(BENCH / script), "--device", "cpu", "--toy", "--precision", "fp32", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_covered_time(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from large_images import union

    assert union([(0, 2), (1, 3), (1, 2), (5, 6), (6, 7)]) == 5


@pytest.mark.slow
def test_service(tmp_path):
    pytest.importorskip("fastapi")
    sizes = ["--items", "600", "--dim", "32", "--queries", "20", "--seconds", "1", "--clients", "4", "--threads", "1"]
    command = [sys.executable, str(BENCH / "service.py"), *sizes, "--json", str(tmp_path / "x.json")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["errors"], found["server_status"], found["clients"]) == (0, 0, 4)
    assert found["n"] > 20
    assert found["recall"] > 0.95
    assert found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]


@pytest.mark.slow
def test_backfill(tmp_path):
    pytest.importorskip("qdrant_edge")
    from PIL import Image

    from holdfast import Encoder, Gallery, Preprocess, build_backbone
    from holdfast.gallery import Item

    preprocess = Preprocess(size=16, mean=(0.5,), std=(0.5,), colour="grey")
    for name in ("old", "new"):
        Encoder(build_backbone("small", width=4), 39, preprocess=preprocess).save_pretrained(tmp_path / name)
    with Gallery.create(tmp_path / "g", tmp_path / "old") as gallery:
        for n in range(20):
            Image.linear_gradient("L").rotate(15 * n).resize((16, 16)).save(tmp_path / f"{n}.png")
            gallery.add([Item(str(n), path=tmp_path / f"{n}.png", label=str(n % 2))])
        gallery.register(tmp_path / "new", force=True)
    words = [str(tmp_path / "g"), "--searches", "20", "--threads", "1", "--json", str(tmp_path / "x.json")]
    done = subprocess.run([sys.executable, str(BENCH / "backfill.py"), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["items"], found["moved"], found["quiet"]["n"]) == (20, 20, 20)
    assert [point["share"] for point in found["accuracy"]] == [0, 1]
    with Gallery.open(tmp_path / "g") as gallery:  # a copy was worked on
        assert [row["items"] for row in gallery.stats()["versions"]] == [20, 0]


def uneven_features(folder, count=600):
    """Files of two models whose spaces differ by a rotation, and by noise for items on one side of the old space."""
    random = np.random.default_rng(0)
    rotation = np.linalg.qr(random.standard_normal((16, 16)))[0]
    centres = random.standard_normal((12, 16))
    labels = np.arange(count) % 12
    new = centres[labels] + 0.6 * random.standard_normal((count, 16))
    noise = np.where(centres[labels, :1] > 0, 1.5, 0.05) * random.standard_normal((count, 16))
    ids = np.array([f"i{n}" for n in range(count)])
    np.savez(folder / "old.npz", features=(new @ rotation + noise).astype(np.float32), labels=labels, ids=ids)
    turned = random.permutation(count)  # paired by id, not by row
    np.savez(folder / "new.npz", features=new[turned].astype(np.float32), labels=labels[turned], ids=ids[turned])
    return ["--old", str(folder / "old.npz"), "--new", str(folder / "new.npz")]


def test_backfill_orders(tmp_path, monkeypatch, capsys):
    """All orders begin and end alike; the predicted residual does better than chance where noise can be predicted."""
    monkeypatch.syspath_prepend(str(BENCH))
    import backfill

    words = [*uneven_features(tmp_path), "--labels", "--pairs", "200", "--queries", "100", "--seeds", "2"]
    monkeypatch.setattr(sys, "argv", ["backfill.py", *words, "--threads", "1", "--json", str(tmp_path / "x.json")])
    backfill.main()
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["items"], found["old"], found["new"]) == (400, "old", "new")
    rows = {(row["measure"], row["order"]): row for row in found["orders"]}
    assert len(rows) == 2 * len(backfill.ORDERS)
    for measure in ("overlap@10", "top1"):
        curves = [rows[measure, order]["curve"] for order in backfill.ORDERS]
        assert {curve[0] for curve in curves} == {curves[0][0]}
        assert {curve[-1] for curve in curves} == {curves[0][-1]}
        for curve, order in zip(curves, backfill.ORDERS, strict=True):
            assert rows[measure, order]["area"] == pytest.approx(np.trapezoid(curve, dx=0.1))
    assert rows["overlap@10", "oldest"]["curve"][-1] == 1
    assert rows["overlap@10", "random"]["gain_over_random"] == 0
    assert rows["overlap@10", "uncertain"]["gain_over_random"] > 0.01
    assert str(tmp_path) not in (tmp_path / "x.json").read_text()
    assert "old to new, 200 pairs" in capsys.readouterr().out


def test_backfill_orders_need_both_files(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(BENCH))
    import backfill

    for words in ([], ["--old", "x.npz"], ["g", "--old", "x.npz", "--new", "y.npz"]):
        monkeypatch.setattr(sys, "argv", ["backfill.py", *words])
        with pytest.raises(SystemExit):
            backfill.main()
        assert "give a GALLERY, or both --old and --new" in capsys.readouterr().err


@pytest.mark.slow
def test_scale_with_given_features(tmp_path):
    pytest.importorskip("qdrant_edge")
    pytest.importorskip("faiss")
    np.save(tmp_path / "features.npy", np.random.default_rng(0).standard_normal((300, 40)).astype(np.float32))
    sizes = ["--items", "3000", "--queries", "20", "--exact-queries", "10", "--dim", "32"]
    command = [sys.executable, str(BENCH / "scale.py"), *sizes, "--features", str(tmp_path / "features.npy")]
    words = ["--cases", "embedded-2", "faiss", "--folder", str(tmp_path), "--json", str(tmp_path / "x.json")]
    done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "x.json").read_text())
    assert (found["items"], found["dim"], found["features"]) == (3000, 32, "features.npy")
    assert found["rows"]["embedded-2"]["gallery"]["recall"] >= 0.9
    assert found["rows"]["faiss"]["plain"]["recall"] >= 0.9
