"""Adopting stored vectors: the report, the folder, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from holdfast.checks import check
from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, VectorInput, build_backbone
from holdfast.train.engine.slots import grow_models
from holdfast.train.geometry import DSimplex, unit
from holdfast.train.versions import adopt, read_adopted, read_stored
from holdfast.vectors import nearest

CLASSES, EACH, DIM = 60, 8, 12


def vectors_of(noise: float, seed: int) -> np.ndarray:
    """Features of one set of items by a model that blurs them by ``noise``; the centres are the same for all."""
    centres = np.random.default_rng(0).normal(size=(CLASSES, DIM))
    draw = np.random.default_rng(seed)
    return np.repeat(centres, EACH, axis=0) + noise * draw.normal(size=(CLASSES * EACH, DIM))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Vectors of a blurred old model, and of a sharper new one in a space turned by a rotation."""
    root = tmp_path_factory.mktemp("vectors")
    turn, _ = np.linalg.qr(np.random.default_rng(9).normal(size=(DIM, DIM)))
    labels = np.array([f"class {i:02d}" for i in range(CLASSES)]).repeat(EACH)
    ids = np.array([f"{label}/{i}.png" for i, label in enumerate(labels)])
    np.savez(root / "old.npz", features=vectors_of(1.2, 1), labels=labels, ids=ids)
    order = np.random.default_rng(2).permutation(len(ids))  # found again by id
    np.savez(root / "new.npz", features=(vectors_of(0.3, 2) @ turn.T)[order], ids=ids[order])
    np.savez(root / "noise.npz", features=np.random.default_rng(5).normal(size=(len(ids), DIM)), ids=ids)
    return {path.stem: path for path in root.iterdir()}


def test_a_better_model_in_a_turned_space_is_bridged_and_the_report_says_so(files, tmp_path):
    out = tmp_path / "adopted"
    found = adopt(files["old"], out=out, new=files["new"], way="bridge", resamples=500, steps=20)
    assert (found.chosen, found.good_enough) == ("bridge", True)
    for answer, question in (
        (found.way("bridge").same_classes, found.same_classes),
        (found.way("bridge").other_classes, found.other_classes),
    ):
        assert answer is not None
        assert question is not None
        assert answer.verdict == "compatible"
        assert answer.gain.low > 0
        assert answer.cross.value - question.as_stored.value == pytest.approx(answer.gain.value)
    assert found.same_classes.classes == CLASSES  # unseen items of every class
    assert found.other_classes.classes == 18
    assert "unseen items of the same classes" in found.judged
    assert "classes that nothing was fitted on" in found.judged
    record = json.loads((out / "adopted.json").read_text())
    assert record["report"] == found.as_json()
    assert record["judged"] == found.judged
    adopted = read_adopted(out)
    assert (adopted.way, adopted.dim, adopted.registry) == ("bridge", DIM, None)
    stored = read_stored(files["old"])
    expected = unit(torch.stack([stored.vectors[stored.labels == i].mean(0) for i in range(CLASSES)]))
    torch.testing.assert_close(adopted.prototypes, expected, atol=1e-5, rtol=0)
    assert adopted.bridge is not None
    assert adopted.bridge.evidence.pairs == len(stored)
    with np.load(files["new"]) as held:
        place = {name: row for row, name in enumerate(held["ids"])}
        new = held["features"][[place[name] for name in stored.ids]]
    bridged = adopted.bridge(new)
    assert float((bridged * stored.vectors.numpy()).sum(1).mean()) > 0.6  # the old model blurs
    assert (nearest(bridged, adopted.prototypes).indices[:, 0] == stored.labels).mean() > 0.9


def test_a_bridge_that_passes_check_is_good_enough_where_it_fails_on_other_classes(tmp_path):
    """Few classes teach a bridge little of other classes, but unseen items of these classes are found."""
    draw = np.random.default_rng(0)
    centres, labels = draw.normal(size=(40, 64)), np.repeat(np.arange(40), 12)
    to_old, to_new = draw.normal(size=(64, 32)) / 8, draw.normal(size=(64, 96)) / 8

    def embedded() -> tuple[np.ndarray, np.ndarray]:
        seen = centres[labels] + draw.normal(size=(len(labels), 64))
        return np.tanh(seen @ to_old + 0.8 * draw.normal(size=(len(labels), 32))), np.tanh(seen @ to_new)

    old, new = embedded()
    found = adopt(old, labels, out=tmp_path / "adopted", new=new, way="bridge", resamples=500)
    bridge = found.way("bridge")
    assert bridge.same_classes is not None
    assert bridge.other_classes is not None
    assert bridge.same_classes.verdict == "compatible"
    assert bridge.other_classes.verdict != "compatible"
    assert found.good_enough is True
    queries_old, queries_new = embedded()
    by_hand = read_adopted(tmp_path / "adopted").bridge(queries_new)
    judged = check((old, labels), (queries_old, labels), (by_hand, labels), resamples=500)
    assert judged.verdict == "compatible"
    assert judged.gain is not None
    assert judged.gain.value == pytest.approx(bridge.same_classes.gain.value, abs=0.1)


def test_every_way_answers_both_questions(files):
    found = adopt(files["old"], out=None, new=files["new"], resamples=500, steps=20)
    assert [way.name for way in found.ways] == ["projection", "means", "bridge"]
    assert all(way.same_classes is not None and way.other_classes is not None for way in found.ways)
    assert found.good_enough is True
    assert found.way("means").stored_gain is None  # it touches nothing
    without = adopt(files["old"], out=None, resamples=500, steps=20)
    assert (without.same_classes, without.good_enough) == (None, None)
    assert all(way.later is None for way in without.ways)


def without_labels(file: Path, out: Path, rows: slice = slice(None)) -> Path:
    with np.load(file) as held:
        np.savez(out, features=held["features"][rows], ids=held["ids"][rows])
    return out


def test_vectors_without_classes_are_kept_as_they_are(files, tmp_path):
    plain = without_labels(files["old"], tmp_path / "plain.npz")
    found = adopt(plain, out=tmp_path / "adopted")
    assert (found.chosen, found.good_enough, found.classes) == ("unchanged", None, 0)
    assert "no classes are known" in found.judged
    adopted, stored = read_adopted(tmp_path / "adopted"), read_stored(plain)
    assert (adopted.way, adopted.dim, adopted.class_names, adopted.bridge) == ("unchanged", DIM, (), None)
    assert adopted.prototypes.shape == (0, DIM)
    torch.testing.assert_close(adopted.carried(stored.vectors), stored.vectors)
    assert adopted.record["judged"] == found.judged
    table = adopted.reference(np.array([stored.ids[7]])).table  # new models can be trained against them
    torch.testing.assert_close(table, stored.vectors[[7]])
    for way in ("projection", "means"):
        with pytest.raises(HoldfastError, match=f"has no labels, which the way '{way}' needs; give them"):
            adopt(plain, out=tmp_path / "other", way=way)
    assert not (tmp_path / "other").exists()


def test_a_bridge_between_sizes_needs_no_classes_and_only_some_items(files, tmp_path):
    plain = without_labels(files["old"], tmp_path / "plain.npz")
    with np.load(files["new"]) as held:
        wider = held["features"] @ np.linalg.qr(np.random.default_rng(3).normal(size=(20, DIM)))[0].T
        np.savez(tmp_path / "wider.npz", features=wider[:300], ids=held["ids"][:300])
    found = adopt(plain, out=tmp_path / "adopted", new=tmp_path / "wider.npz")
    assert (found.chosen, found.good_enough, found.pairs, found.ways) == ("bridge", None, 300, [])
    assert found.bridge is not None
    assert found.bridge["evidence"]["measure"] == "overlap@10"
    assert any("300 of 480 items" in note for note in found.notes)
    adopted, stored = read_adopted(tmp_path / "adopted"), read_stored(files["old"])
    assert adopted.bridge is not None
    assert adopted.bridge.dims == (20, DIM)
    means = unit(torch.stack([stored.vectors[stored.labels == i].mean(0) for i in range(CLASSES)]))
    with np.load(files["new"]) as held:
        labels = [stored.class_names.index(str(name).rpartition("/")[0]) for name in held["ids"][300:]]
    unseen = nearest(adopted.bridge(wider[300:]), means).indices[:, 0]
    assert (unseen == labels).mean() > 0.8


def test_without_classes_unrelated_vectors_are_not_bridged(files, tmp_path):
    plain = without_labels(files["old"], tmp_path / "plain.npz")
    found = adopt(plain, out=tmp_path / "adopted", new=files["noise"])
    assert (found.chosen, found.good_enough) == ("unchanged", False)
    assert "no bridge helps" in found.reason
    assert read_adopted(tmp_path / "adopted").bridge is None


@pytest.mark.parametrize("classes", [1, 5])
def test_a_bridge_needs_no_eight_classes(classes, files, tmp_path):
    stored = read_stored(files["old"])
    found = adopt(stored.vectors, LABELS % classes, out=None, new=vectors_of(0.3, 2), way="bridge", resamples=500)
    assert found.other_classes is None
    assert found.same_classes is not None
    assert found.chosen == "bridge"


def test_unchanged_fits_nothing_whatever_is_known(files, tmp_path):
    found = adopt(files["old"], out=tmp_path / "adopted", new=files["new"], way="unchanged")
    assert (found.chosen, found.ways, found.bridge, found.classes) == ("unchanged", [], None, CLASSES)
    assert found.judged.startswith("nothing: no classes were used")
    adopted = read_adopted(tmp_path / "adopted")
    assert adopted.prototypes.shape == (CLASSES, DIM)  # the classes are known all the same
    assert adopted.bridge is None


def test_classes_of_one_item_are_no_question(files):
    stored = read_stored(files["old"])
    found = adopt(stored.vectors, np.arange(len(stored)), out=None, new=vectors_of(0.3, 2), way="bridge")
    assert (found.same_classes, found.other_classes, found.chosen) == (None, None, "bridge")
    assert "no classes were used" in found.judged


def test_the_new_model_is_copied_beside_the_bridge(files, tmp_path):
    torch.manual_seed(0)
    backbone = build_backbone("linear", in_channels=4, width=DIM)
    Encoder(backbone, preprocess=VectorInput(4)).save_pretrained(tmp_path / "m")
    given = {"new": files["new"], "new_model": tmp_path / "m", "way": "bridge"}
    adopt(files["old"], out=tmp_path / "v0", **given, resamples=500, steps=20)
    read_adopted(tmp_path / "v0")
    queries = torch.randn(5, 4)
    copied = Encoder.from_pretrained(tmp_path / "v0" / "new_model")
    assert torch.equal(copied.encode(queries), Encoder.from_pretrained(tmp_path / "m").encode(queries))


def test_noise_is_not_good_enough_and_the_report_says_so(files):
    found = adopt(files["old"], out=None, new=files["noise"], resamples=500, steps=20)
    assert found.good_enough is False
    assert "none of the ways is good enough" in found.reason
    assert all(way.later is not None and way.later.gain.high < 0 for way in found.ways)
    assert found.bridge is not None
    assert found.bridge["helps"] is False


def test_an_adopted_projection_is_a_model_of_stored_vectors(files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="projection", resamples=500, steps=20)
    adopted = read_adopted(tmp_path / "adopted")
    assert adopted.registry is not None
    assert (adopted.dim, adopted.registry.num_slots) == (119, 120)  # twice the classes
    stored = read_stored(files["old"])
    carried = adopted.carried(stored.vectors)
    assert torch.equal(Encoder.from_pretrained(tmp_path / "adopted").encode(stored.vectors), carried)
    slots = torch.tensor([adopted.registry.slot(name) for name in adopted.class_names])
    closest = DSimplex(120).logits(adopted.prototypes).argmax(1)
    assert (closest == slots).float().mean() > 0.9  # class means lie nearest to their own vertices
    if (
        adopted.record["report"]["ways"][0]["settings"]["pull"] is None
    ):  # an isometry: the store's order is the true one
        truth = nearest(carried[:20], carried, 10).indices
        assert np.array_equal(nearest(adopted.on_store(carried[:20]), stored.vectors, 10).indices, truth)


def test_engine_images_find_their_vectors_by_name(files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="means", resamples=500, steps=20)
    adopted, stored = read_adopted(tmp_path / "adopted"), read_stored(files["old"])
    names = np.array([stored.ids[7], "a new image", stored.ids[3]])
    table = adopted.reference(names).table
    torch.testing.assert_close(table[[0, 2]], stored.vectors[[7, 3]])
    assert not table[1].any()
    with pytest.raises(HoldfastError, match="none of its ids"):
        adopted.reference(np.array(["nowhere"]))
    moved = tmp_path / "moved.npz"
    moved.write_bytes(files["old"].read_bytes())
    assert torch.equal(adopted.reference(names, features=moved).table, table)
    with pytest.raises(HoldfastError, match="sha256 differs"):
        adopted.reference(names, features=files["new"])


@pytest.mark.parametrize("name", ["adopted.json", "config.json", "model.safetensors", "prototypes.safetensors"])
def test_a_folder_changed_by_hand_is_refused(name, files, tmp_path):
    adopt(files["old"], out=tmp_path / "adopted", way="means", resamples=500, steps=20)
    file = tmp_path / "adopted" / name
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'"means"', b'"bridge"', 1) if name.endswith("json") else raw[:-1] + b"?")
    assert file.read_bytes() != raw
    with pytest.raises(HoldfastError, match=f"{name}: changed since the model was written .sha256 differs"):
        read_adopted(tmp_path / "adopted")


def test_an_adopted_model_is_not_grown(files, tmp_path):
    """Its prototypes lie in its own simplex."""
    adopt(files["old"], out=tmp_path / "v0", way="projection", resamples=500, steps=20)
    with pytest.raises(HoldfastError, match="adopt it again with --slots 150"):
        grow_models([tmp_path / "v0"], 150)
    read_adopted(tmp_path / "v0")


def test_a_new_model_that_did_not_give_the_new_features(files, tmp_path):
    Encoder(build_backbone("linear", in_channels=4, width=5), preprocess=VectorInput(4)).save_pretrained(tmp_path / "m")
    with pytest.raises(HoldfastError, match="m: gives 5 numbers, but its vectors here have"):
        adopt(files["old"], out=tmp_path / "v0", new=files["new"], new_model=tmp_path / "m", steps=20)
    assert not (tmp_path / "v0").exists()


def test_arrays_are_given_as_a_check_takes_them(files):
    with np.load(files["old"]) as old, np.load(files["new"]) as new:
        arrays = (old["features"], old["labels"], old["ids"]), (new["features"], None, new["ids"])
    options = {"out": None, "way": "bridge", "resamples": 100, "steps": 5}
    found, read = adopt(arrays[0], new=arrays[1], **options), adopt(files["old"], new=files["new"], **options)
    assert (found.ways, found.pairs, found.notes) == (read.ways, read.pairs, read.notes)


def test_arrays_in_memory_cannot_be_read_again(tmp_path):
    adopt(vectors_of(1.0, 1), out=tmp_path / "v0", way="unchanged")
    with pytest.raises(HoldfastError, match="v0: was adopted from arrays in memory; adopt a file"):
        read_adopted(tmp_path / "v0").stored()


GOOD = vectors_of(1.0, 1)
LABELS = np.repeat(np.arange(CLASSES), EACH)
WITH_NAN = GOOD.copy()
WITH_NAN[[3, 5]] = np.nan


@pytest.mark.parametrize(
    ("features", "labels", "options", "message"),
    [
        (WITH_NAN, LABELS, {}, "2 vectors are not finite (rows 3, 5); leave them out"),
        (GOOD * (np.arange(480) != 4)[:, None], LABELS, {}, "1 vector is zero (row 4); leave it out"),
        (GOOD, LABELS[:-1], {}, "480 vectors but labels of shape (479,)"),
        (GOOD, LABELS * 0, {}, "one class only (0)"),
        (GOOD, None, {"way": "means"}, "has no labels, which the way 'means' needs; give them"),
        (GOOD, LABELS % 5, {}, "5 classes with two vectors or more; at least 8 are needed"),
        (GOOD[:, 0], LABELS, {}, "features must be a matrix of numbers"),
        (GOOD, LABELS, {"new": GOOD[:-1]}, "479 vectors, but 480 in features"),
        (GOOD, LABELS, {"new": WITH_NAN}, "new: 2 vectors are not finite (rows 3, 5); leave them out"),
        (GOOD, LABELS, {"way": "magic"}, "unknown way 'magic'; known: bridge, means, projection, unchanged"),
        (GOOD, LABELS, {"way": "bridge"}, "needs a new model's vectors"),
        (GOOD, LABELS, {"slots": DIM + 1}, "take one more"),
        (GOOD, LABELS, {"slots": 10}, "no slot left for class"),
        (GOOD, LABELS, {"slots": 0}, "slots 0: a number of at least 2"),
        (GOOD, LABELS, {"slots": 900, "way": "unchanged"}, "slots 900: a number of at least 2, for the ways that use"),
        (GOOD, LABELS, {"new_model": "m"}, "new_model goes with new"),
        (GOOD, None, {"new": GOOD[:5], "way": "bridge"}, "5 vectors, but 480 in features"),
        (GOOD[:5], None, {"new": GOOD[:5]}, "5 pairs are too few for a bridge"),
        (GOOD, LABELS, {"held_out": 1.5}, "between 0 and 1, got 1.5"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(features, labels, options, message, tmp_path):
    with pytest.raises(HoldfastError) as refused:
        adopt(features, labels, out=tmp_path / "adopted", **{"resamples": 500, "steps": 20, **options})
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_a_place_that_may_not_be_written_is_found_before_anything_is_fitted(files, tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    stages = []
    with pytest.raises(HoldfastError, match="may not be written to; choose another folder"):
        adopt(files["old"], out=tmp_path / "out", new=files["new"], progress=lambda stage, *_: stages.append(stage))
    assert stages == ["reading"]


def test_queries_are_sampled_and_the_record_says_so(files):
    stages = []
    options = {"new": files["new"], "out": None, "resamples": 500, "steps": 20}
    every = adopt(files["old"], **options)
    some = adopt(files["old"], **options, max_queries=60, progress=lambda *now: stages.append(now))
    assert (every.same_classes.queries, every.same_classes.held_out) == (120, 120)
    assert (some.same_classes.queries, some.same_classes.held_out) == (60, 120)
    assert some.other_classes.queries == 60
    assert "60 of 120 queries, drawn at random, of unseen items" in some.judged
    assert some.as_json()["same_classes"]["held_out"] == 120
    for way in every.ways:  # the same answers
        assert some.way(way.name).same_classes.verdict == way.same_classes.verdict
        gains = some.way(way.name).same_classes.gain, way.same_classes.gain
        assert gains[1].low <= gains[0].value <= gains[1].high
    assert {name.split(":")[0] for name, _, _ in stages} >= {"reading", "question 1 of 2", "question 2 of 2"}
    assert all(0 <= done <= total for _, done, total in stages)
    with pytest.raises(HoldfastError, match="max-queries must be at least 1"):
        adopt(files["old"], out=None, max_queries=0)


def test_top1_equals_a_plain_search(files):
    """The reference: one search of all held-out items in the whole gallery."""
    from holdfast.train.versions.stored_vectors import split_items

    found = adopt(files["old"], out=None, new=files["new"], way="bridge", resamples=500)
    stored = read_stored(files["old"])
    split = split_items(stored.labels, held_out=0.3, seed=0)
    similar = stored.vectors[split.queries] @ stored.vectors[split.gallery].T
    hits = stored.labels[split.gallery][similar.argmax(1).numpy()]
    assert found.same_classes.as_stored.value == pytest.approx((hits == stored.labels[split.queries]).mean())
