"""``start`` on vectors measures the model on classes it was not trained on, beside the raw vectors."""

import json

import numpy as np
import pytest

from holdfast.cli.start import print_version
from holdfast.train.data.openset import half_of_each_class
from holdfast.train.encoders.accuracy_record import HELD_OUT_CLASSES, KNOWN_CLASSES, accuracy_sentences, with_advice
from holdfast.train.engine import Cancellation, Cancelled
from holdfast.train.events import TaskBegan, TasksPlanned
from holdfast.train.versions import accuracy, start, train_version, update

PER_CLASS, WIDTH = 12, 16
FEW = ["train.epochs=2", "buffer.per_class=3"]


def write_vectors(path, classes):
    """Clouds that overlap a little, around a random centre of each class."""
    rows = [_cloud(label) for label in range(classes)]
    names = np.repeat([f"topic {label}" for label in range(classes)], PER_CLASS)
    np.savez(path, features=np.concatenate(rows).astype(np.float32), labels=names)
    return path


def _cloud(label):
    draw = np.random.default_rng([3, label])
    return draw.standard_normal((1, WIDTH)) + 0.7 * draw.standard_normal((PER_CLASS, WIDTH))


@pytest.fixture(scope="module")
def events():
    return []


@pytest.fixture(scope="module")
def first(tmp_path_factory, events):
    top = tmp_path_factory.mktemp("head")
    info = start(write_vectors(top / "1.npz", 15), top / "1", changes=FEW, device="cpu", on_event=events.append)
    return top / "1", info


def test_the_record(first, events):
    _, info = first
    found = info["accuracy"][HELD_OUT_CLASSES]
    assert found["classes"] == 15  # each is held out in one of five trials
    assert found["queries"] == 15 * PER_CLASS // 2
    assert found["gallery"] == 3 * PER_CLASS // 2
    assert found["raw_is"] == "vectors"
    assert found["gain"]["value"] == pytest.approx(found["model"]["value"] - found["raw"]["value"])
    assert found["gain"]["low"] <= found["gain"]["value"] <= found["gain"]["high"]
    assert KNOWN_CLASSES in info["accuracy"]
    (planned,) = (event for event in events if isinstance(event, TasksPlanned))
    began = [event for event in events if isinstance(event, TaskBegan)]
    assert [event.task for event in began] == [1, 2, 3, 4, 5, 6]
    assert [event.steps for event in began] == list(planned.steps)
    assert [event.classes for event in began] == [12] * 5 + [15]


def test_what_is_printed(first, capsys):
    folder, info = first
    print_version(folder, info, json=False)
    printed = " ".join(capsys.readouterr().out.split())
    assert "of 15 new classes Accuracy" in printed  # nothing is replayed, and there are no slots
    assert "Accuracy, trained classes: the nearest neighbour is right for" in printed
    assert "Accuracy, held-out classes: the nearest neighbour is right for" in printed
    assert info["accuracy"]["advice"] in printed
    assert "do not rely on it" not in printed  # the advice says what follows
    print_version(folder, info, json=True)
    assert json.loads(capsys.readouterr().out)["accuracy"]["advice"] == info["accuracy"]["advice"]


def test_a_head_that_destroys_the_vectors(tmp_path):
    """A network of two numbers cannot tell 15 classes apart."""
    narrow = ["backbone.name=mlp", "backbone.hidden=4", "backbone.width=2", "train.epochs=1"]
    info = start(write_vectors(tmp_path / "1.npz", 15), tmp_path / "1", changes=narrow, device="cpu")
    gain = info["accuracy"][HELD_OUT_CLASSES]["gain"]["value"]
    assert gain < 0
    assert info["accuracy"]["advice"].startswith(
        f"Keep your vectors: the model is worse than they are on classes that it was not trained on ({100 * gain:+.1f} "
    )


def test_too_few_classes(tmp_path):
    info = start(write_vectors(tmp_path / "1.npz", 9), tmp_path / "1", changes=FEW, device="cpu")
    reason = info["accuracy"][HELD_OUT_CLASSES]["not_measured"]
    assert reason == "9 classes with two vectors or more, at least 10 are needed"
    assert f"Accuracy, held-out classes: not measured: {reason}." in accuracy_sentences(info["accuracy"])


def test_an_update_has_no_trial(first, tmp_path):
    folder, _ = first
    info = update(folder, write_vectors(tmp_path / "2.npz", 17), tmp_path / "2", device="cpu")
    assert info["accuracy"].keys() == {KNOWN_CLASSES}  # and no advice, which known classes alone could contradict


def test_enough_queries(tmp_path, monkeypatch):
    """One trial is enough for as many queries as are asked for."""
    monkeypatch.setattr(accuracy, "ENOUGH_QUERIES", 10)
    info = start(write_vectors(tmp_path / "1.npz", 15), tmp_path / "1", changes=FEW, device="cpu")
    assert info["accuracy"][HELD_OUT_CLASSES]["queries"] == 3 * PER_CLASS // 2


def test_a_resumed_training_does_not_repeat_the_trials(first, tmp_path, monkeypatch):
    cancel, calls = Cancellation(), []
    run_trials = train_version.run_trials

    def counted_trials(trials, make_encoder, samples, *others):
        calls.append((trials, samples))
        found = run_trials(trials, make_encoder, samples, *others)
        cancel.cancel()
        return found

    monkeypatch.setattr(train_version, "run_trials", counted_trials)
    data = first[0].parent / "1.npz"
    with pytest.raises(Cancelled):
        start(data, tmp_path / "1", changes=FEW, device="cpu", cancel=cancel)
    info = start(data, tmp_path / "1", changes=FEW, device="cpu")
    ((trials, samples),) = calls
    check_the_trials(trials, samples, info["accuracy"][HELD_OUT_CLASSES])
    assert info["accuracy"] == first[1]["accuracy"]
    assert not (tmp_path / "1" / "trials.json").exists()
    assert (tmp_path / "1" / "model.safetensors").read_bytes() == (first[0] / "model.safetensors").read_bytes()


def check_the_trials(trials, samples, found):
    """A trial knows nothing of its held-out classes, and the raw vectors' score is that of a plain search of them."""
    assert sorted(name for trial in trials for name in trial.held_out) == sorted(set(samples.class_names))
    right = []
    for trial in trials:
        assert set(trial.images.class_names) == set(samples.class_names) - set(trial.held_out)
        names = np.array(trial.images.class_names)[trial.images.labels]
        trained = {(name, row.tobytes()) for name, row in zip(names, trial.images.images, strict=True)}
        assert trained < {(name, row.tobytes()) for name, row in zip(samples.class_names, samples.pixels, strict=True)}
        unseen = samples.rows(np.isin(samples.class_names, trial.held_out))
        _, codes = np.unique(unseen.class_names, return_inverse=True)
        vectors = unseen.pixels.reshape(len(unseen), WIDTH)
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        asked = half_of_each_class(codes, "query", 0)
        nearest = (unit[asked] @ unit[~asked].T).argmax(1)
        right += (codes[~asked][nearest] == codes[asked]).tolist()
    assert found["raw"]["value"] == pytest.approx(np.mean(right))


def record(value, low, high, queries=100):
    return {"raw_is": "vectors", "queries": queries, "gain": {"value": value, "low": low, "high": high}}


@pytest.mark.parametrize(
    ("gain", "begins"),
    [
        ((-0.02, -0.03, -0.01), "Keep your vectors: the model is worse than they are"),
        ((-0.01, -0.03, 0.01), "Keep your vectors: the model is not better than they are"),
        ((0.01, -0.01, 0.03), "Use either: the model is not shown to be better than your vectors"),
        ((0.02, 0.01, 0.03), "Use the model: it is better than your vectors"),
    ],
)
def test_the_advice(gain, begins):
    value, low, high = (f"{100 * one:+.1f}" for one in gain)
    advice = with_advice({KNOWN_CLASSES: record(0, 0, 0), HELD_OUT_CLASSES: record(*gain)})["advice"]
    assert advice == f"{begins} on classes that it was not trained on ({value} points, {low} to {high})."


def test_a_gain_on_known_classes_alone():
    known = record(0.1, 0.05, 0.15)
    advice = with_advice({KNOWN_CLASSES: known, HELD_OUT_CLASSES: record(0.01, -0.01, 0.03)})["advice"]
    assert advice == (
        "Use the model: it is better than your vectors on classes that it was trained on "
        "(+10.0 points, +5.0 to +15.0), and not shown to be worse on classes that it was not trained on "
        "(+1.0 points, -1.0 to +3.0)."
    )
    kept = with_advice({KNOWN_CLASSES: known, HELD_OUT_CLASSES: record(-0.01, -0.03, 0.01)})["advice"]
    assert kept == (
        "The model is better than your vectors on classes that it was trained on (+10.0 points, +5.0 to +15.0). "
        "Keep your vectors for other searches: it is not better on classes that it was not trained on "
        "(-1.0 points, -3.0 to +1.0)."
    )
    worse = with_advice({KNOWN_CLASSES: known, HELD_OUT_CLASSES: record(-0.02, -0.03, -0.01)})["advice"]
    assert worse.startswith("Keep your vectors: the model is worse")


def test_advice_by_known_classes_and_for_images():
    skipped = {HELD_OUT_CLASSES: {"not_measured": "x"}}
    known = with_advice({KNOWN_CLASSES: record(0.02, 0.01, 0.03), **skipped})
    assert known["advice"].endswith("on classes that it was trained on (+2.0 points, +1.0 to +3.0).")
    assert "advice" not in with_advice(skipped)
    images = {KNOWN_CLASSES: {**record(0.02, 0.01, 0.03), "raw_is": "pixels"}}
    assert with_advice(images) == images
