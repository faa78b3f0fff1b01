"""The whole history: the evaluation's numbers, the verdicts of single checks, joint intervals."""

import json

import numpy as np
import pytest
import torch

from holdfast import check, check_history
from holdfast.core.errors import HoldfastError
from holdfast.core.run_folder import RunFolder
from holdfast.train.encoders.feature_store import FeatureStore, ModelFeatures
from holdfast.train.evaluation import run_models
from holdfast.train.space_map import SpaceMap


@pytest.fixture
def models(clustered):
    """Four models, each less noisy than the one before, the last one in a space of its own."""
    labels, gallery_labels = np.arange(400) % 20, np.arange(100) % 20
    made = [
        ((clustered(labels, noise, seed=t), labels), (clustered(gallery_labels, noise, seed=9 + t), gallery_labels))
        for t, noise in enumerate((0.35, 0.3, 0.25))
    ]
    strange = clustered(labels, 0.2, world=3), clustered(gallery_labels, 0.2, seed=1, world=3)
    return [*made, ((strange[0], labels), (strange[1], gallery_labels))]


def history_of_run(folder, **options):
    return check_history(*run_models(folder), **options)


def test_a_folder_without_a_run_is_refused():
    with pytest.raises(HoldfastError, match="not a run folder"):
        run_models("nowhere")


@pytest.mark.parametrize("protocol", ["template", "instance"])
def test_a_run_has_the_numbers_of_its_metrics(protocol, tiny_run):
    recorded = json.loads((tiny_run / "metrics.json").read_text())["protocols"][protocol]
    found = history_of_run(tiny_run, protocol=protocol)
    for t, row in enumerate(recorded["matrix"]):
        for k, value in enumerate(row):
            estimate = found.matrix[t][k]
            assert (None if estimate is None else estimate.value) == value
    for name in ("AC", "AA", "ACA"):
        assert getattr(found, name) == pytest.approx(recorded[name])


def test_cells_are_single_checks(models):
    found = check_history(models)
    for t in range(4):
        for k in range(t):
            single = check(models[k][1], models[k][0], models[t][0])
            assert found.gains[t][k] == single.gain
            assert found.matrix[t][k] == single.cross_test
            if "unrelated" not in single.reason:
                assert found.verdicts[t][k] == single.verdict
    assert (found.verdict, found.exit_code) == ("worse", 1)
    assert found.reason.endswith("the gallery of model 1, 2, 3")
    assert {(cell["query_model"], cell["gallery_model"]) for cell in found.uncertain} == {
        (str(t + 1), str(k + 1)) for t in range(4) for k in range(t) if found.verdicts[t][k] == "not shown"
    }


def test_a_history_that_holds(models):
    found = check_history(models[:3], max_loss=0.05)
    assert (found.loss.answer, found.exit_code) == ("yes", 0)
    assert found.as_json()["losses"][2][:2] == ["yes", "yes"]


def test_rows_are_matched_by_id(models):
    ids, order = np.arange(400), np.random.default_rng(0).permutation(400)
    (query, labels), gallery = models[1]
    named = [((*models[0][0], ids), models[0][1]), ((query[order], labels[order], ids[order]), gallery)]
    assert check_history(named).matrix == check_history(models[:2]).matrix


def test_maps_of_a_run_are_used(tiny_run, tmp_path):
    import shutil

    folder = shutil.copytree(tiny_run, tmp_path / "run")
    plain = history_of_run(folder)
    dim = np.load(folder / "features" / "01" / "gallery.npy").shape[1]
    torch.manual_seed(0)
    SpaceMap(dim, dim, 8).save(RunFolder(folder).space_map(2))
    found = history_of_run(folder)
    assert found.matrix[1][1] == plain.matrix[1][1]
    assert found.matrix[1][0] != plain.matrix[1][0]
    assert "maps" in found.notes[0]


def test_other_sizes_cannot_be_compared(models):
    wide = [(np.hstack([features] * 2), labels) for features, labels in models[1]]
    found = check_history([models[0], tuple(wide)])
    assert found.matrix[1][0] is None
    assert found.verdict == "worse"
    assert np.isnan(found.AA)
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (lambda m: m[:1], {}, "at least two models"),
        (lambda m: [], {}, "at least two models"),
        (lambda m: m, {"score": "auc"}, "unknown score"),
        (lambda m: [((m[0][0][0], None), m[0][1]), m[1]], {}, "has no labels"),
        (lambda m: [m[0], ((m[1][0][0][:9], m[1][0][1][:9]), m[1][1])], {}, "has 9 rows"),
        (lambda m: [m[0], ((m[1][0][0], m[1][0][1][::-1]), m[1][1])], {}, "are they the same images"),
        (
            lambda m: [((*m[0][0], np.arange(400)), m[0][1]), ((*m[1][0], np.arange(1, 401)), m[1][1])],
            {},
            "lacks 1 ids",
        ),
    ],
)
def test_refused(change, options, reason, models):
    with pytest.raises(HoldfastError, match=reason):
        check_history(change(models), **options)


def test_zero_vectors_find_nothing_and_are_not_found(clustered):
    """As in a single check: a zero query of the first item's class is not right."""
    labels, gallery_labels = np.arange(400) % 20, np.arange(100) % 20
    gallery = clustered(gallery_labels, 0.3, seed=9)
    old, new = (clustered(labels, 0.3, seed=seed) for seed in (0, 1))
    new[labels == gallery_labels[0]] = 0
    gallery[3] = 0
    sets = [((queries, labels), (gallery, gallery_labels)) for queries in (old, new)]
    for score in ("hit@1", "mAP"):
        pair = check((gallery, gallery_labels), (old, labels), (new, labels), score=score)
        history = check_history(sets, score=score)
        assert history.matrix[1][0].value == pytest.approx(pair.cross_test.value)
        assert history.matrix[0][0].value == pytest.approx(pair.self_test.value)
    assert any("find nothing and count as wrong" in note for note in history.notes)
    assert any("are never found" in note or "is never found" in note for note in history.notes)


def test_average_precision_of_a_class_with_nothing_but_zero_vectors_is_zero(clustered):
    """In the gallery of one model only: the class still counts in every cell."""
    labels, gallery_labels = np.arange(400) % 20, np.arange(100) % 20
    galleries = [clustered(gallery_labels, 0.3, seed=seed) for seed in (8, 9)]
    galleries[1][gallery_labels == 3] = 0
    queries, others = clustered(labels, 0.3, seed=0), labels != 3
    sets = [((queries, labels), (gallery, gallery_labels)) for gallery in galleries]
    found = check_history(sets, score="mAP")
    counted = [((queries[others], labels[others]), gallery) for _, gallery in sets]
    without = check_history(counted, score="mAP")
    assert found.matrix[1][1].value == pytest.approx(without.matrix[1][1].value * 0.95)
    pair = check(sets[1][1], sets[0][0], (2 * queries, labels), score="mAP")  # and in a single check
    assert pair.self_test.value == pytest.approx(found.matrix[1][1].value)


def test_compact_features_of_a_run_are_compared_in_full(clustered, tmp_path):
    """Two models store the same full features, each in a basis of its own."""
    labels, gallery_labels = np.arange(400) % 20, np.arange(100) % 20
    queries, gallery = clustered(labels, 0.1, seed=0), clustered(gallery_labels, 0.1, seed=9)
    store = FeatureStore(tmp_path / "run" / "features")
    size = queries.shape[1]
    store.open_for(labels, gallery_labels, "made up")
    for number in (1, 2):
        basis = np.linalg.qr(np.random.default_rng(number).standard_normal((size, size)))[0].astype(np.float32)
        store.write(number, ModelFeatures(queries @ basis, gallery @ basis, basis))
    first, second = (tmp_path / "run" / "features" / f"0{number}" for number in (1, 2))
    pair = check(first, first, second)
    assert pair.cross_test.value == pair.self_test.value > 0.9
    history = check_history([(first, first), (second, second)])
    assert history.matrix[1][0].value == pair.cross_test.value
