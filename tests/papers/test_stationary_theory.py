"""The study's ``theory`` commands: JSON, refusals by name, figures on disk, and the part of a run's report."""

import json
import shutil

import pytest

from holdfast.core.errors import HoldfastError
from papers.run_pages import write_report

PNG = b"\x89PNG"


def test_theorem1_json(study_json):
    rows = study_json(
        "theory", "theorem1", "--dims", "2,16,2048", "--old-angle", 60, "--new-angle", 40, "--samples", 20_000
    )
    assert [row["d"] for row in rows] == [2, 16, 2048]
    for row in rows:
        for kind in ("same", "different"):
            for name in ("kt", "kk"):
                value = row[kind][name]
                assert value.keys() == {"mean", "se", "exact"}
                assert abs(value["mean"] - value["exact"]) < 4 * value["se"]
            assert row[kind]["holds"] is True
    assert rows[1]["same"]["kt"]["exact"] == pytest.approx(0.5450, abs=1e-3)


def test_tables_and_figures(study, study_json, tmp_path):
    text = study("theory", "theorem1", "--dims", "2,8", "--samples", 2000, "--out", tmp_path / "fig12.png")
    assert "holds" in text
    rows = study_json("theory", "limits", "--dims", "9", "--new-angles", "40,65", "--out", tmp_path / "limits.svg")
    assert rows[0]["average"] == pytest.approx(41.2, abs=0.1)
    assert rows[1]["average"] is None
    assert "none" in study("theory", "limits", "--dims", "9", "--new-angles", "65")
    rows = study_json("theory", "proposition2", "--dims", "10", "--counts", "100")
    assert rows[0]["angle"] == pytest.approx(0.4614, abs=1e-4)
    found = study_json("theory", "proposition3", "--classes", 20, "--seen", 10, "--steps", 300)
    assert found["unseen_smallest"][-1] < found["unseen_smallest"][0]
    assert "fixed simplex" in study("theory", "proposition3", "--classes", 20, "--seen", 10, "--steps", 10)
    assert (tmp_path / "fig12.png").read_bytes()[:4] == PNG
    assert "<svg" in (tmp_path / "limits.svg").read_text()
    with pytest.raises(HoldfastError, match="--new-angles"):
        study("theory", "limits", "--new-angles", ",")


def test_stationarity_of_a_run(study, study_json, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    record = study_json("theory", "stationarity", folder)
    assert record["prototypes"] == "fixed simplex"
    assert [(u["from"], u["to"], u["num_classes"]) for u in record["updates"]] == [(1, 2, 2), (2, 3, 4)]
    assert all(u["moved"] < 0.01 for u in record["updates"])
    written = json.loads((folder / "stationarity.json").read_text())
    assert {**written, "run": str(folder)} == record
    shares = record["pairs"]["same"]
    assert shares[1][0] == pytest.approx(record["updates"][0]["same"]["share"])
    assert shares[0] == [None, None, None]
    assert 0 <= shares[2][0] <= 1
    page = (folder / "report.html").read_text()
    assert "Does the theorem’s assumption hold?" in page
    text = study("theory", "stationarity", folder, "--per-class", 4)
    assert not [line for line in text.splitlines() if len(line) > 80]
    text = " ".join(text.split())
    assert "The assumption" in text
    assert "1 to 2" in text
    (folder / "stationarity.json").write_text('{"updates": [{"from": 1}], "samples": 1}')
    with pytest.raises(HoldfastError, match=r"stationarity\.json: incomplete"):
        write_report([folder], tmp_path / "page.html")
    with pytest.raises(HoldfastError, match="per_class"):
        study("theory", "stationarity", folder, "--per-class", 1)
    with pytest.raises(HoldfastError, match="not a run folder"):
        study("theory", "stationarity", tmp_path)
    shutil.rmtree(folder / "models" / "03")
    with pytest.raises(HoldfastError, match="model 3 is not trained"):
        study("theory", "stationarity", folder)


def test_stationarity_of_a_trainable_classifier(study, study_json, tiny_recipe, tmp_path):
    words = ["run", tiny_recipe, "--out", tmp_path / "er", "--set", "method.name=er", "--device", "cpu"]
    study(*words)
    record = study_json("theory", "stationarity", tmp_path / "er")
    assert record["prototypes"] == "classifier rows"
    assert all(u["moved"] > 0 for u in record["updates"])


def test_a_turned_simplex_is_stationary_for_classes_with_a_vertex(study, study_json, tiny_recipe, tmp_path):
    """Free vertices move between two tasks, those of old classes do not: the theorem's assumption is about these."""
    words = ["run", tiny_recipe, "--out", tmp_path / "turned", "--set", "method.placing=means", "--device", "cpu"]
    study(*words)
    record = study_json("theory", "stationarity", tmp_path / "turned")
    assert record["prototypes"] == "turned simplex"
    assert [(u["from"], u["to"], u["num_classes"]) for u in record["updates"]] == [(1, 2, 2), (2, 3, 4)]
    assert all(u["moved"] < 1e-4 for u in record["updates"])  # degrees


def test_proposition1_and_the_toy(study, study_json, tiny_recipe, tmp_path):
    """The first model is trained once: the second run starts from it, bit for bit."""
    words = ["theory", "proposition1", tiny_recipe, "--out", tmp_path, "--device", "cpu"]
    record = study_json(*words)
    assert record["proposition1"].keys() == {"ce", "hoc"}
    for updates in record["proposition1"].values():
        assert [(u["from"], u["to"]) for u in updates] == [(1, 2), (2, 3)]
        assert all(0 <= u[eq]["violated"] <= 1 for u in updates for eq in ("eq1a", "eq1b"))
    models = [(tmp_path / name / "models" / "01" / "model.safetensors").read_bytes() for name in ("ce", "hoc")]
    assert models[0] == models[1]
    later = [(tmp_path / name / "models" / "02" / "model.safetensors").read_bytes() for name in ("ce", "hoc")]
    assert later[0] != later[1]
    curves = record["curves"]
    assert len(curves["ce"]["loss"]) == 2
    assert curves["ce"]["loss"] == pytest.approx(curves["ce"]["ce"])
    assert curves["hoc"]["loss"][0] == pytest.approx(0.3 * curves["hoc"]["ce"][0] + 0.7 * curves["hoc"]["nce"][0])
    assert "1 to 2" in study(*words)
    with pytest.raises(HoldfastError, match="simplex_hoc"):
        study(*words, "--set", "method.name=er")


@pytest.mark.slow
def test_toy_on_drawn_characters(study_json, tmp_path):
    small = ["data.train.per_class_train=6", "train.epochs=2", "data.query.per_class_query=2"]
    sets = [word for setting in small for word in ("--set", setting)]
    record = study_json("theory", "toy", "--glyphs", "--out", tmp_path, "--device", "cpu", *sets)
    assert [len(record["curves"][name]["loss"]) for name in ("ce", "hoc")] == [2, 2]
    assert (tmp_path / "fig3.png").read_bytes()[:4] == PNG
    assert json.loads((tmp_path / "toy.json").read_text()) == record
