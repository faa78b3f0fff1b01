"""The accuracy that a new version reports: by the model and by its raw input, on held-out samples."""

import json

import numpy as np
import pytest
import torch

from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone
from holdfast.train.encoders.accuracy_record import KNOWN_CLASSES, accuracy_sentence, beats_raw
from holdfast.train.versions import accuracy
from holdfast.train.versions.accuracy import LabelledSamples, known_class_accuracy, neighbour_accuracy, raw_features

CPU = torch.device("cpu")


def vectors(count: int, seed: int) -> LabelledSamples:
    """Classes "0" and "1" differ in the first of four numbers; the others are large noise."""
    draw = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    rows = draw.normal(size=(count, 4)).astype(np.float32) * [0.1, 5, 5, 5]
    rows[:, 0] += np.where(labels == 1, 1, -1)
    return LabelledSamples(rows.astype(np.float32).reshape(count, 1, 1, 4), labels.astype(str))


def encoder_of(weight: list[list[float]]) -> Encoder:
    """A linear network on four numbers with these weights."""
    rows = torch.tensor(weight)
    encoder = Encoder(build_backbone("linear", in_channels=4, width=len(rows)), preprocess=VectorInput(4))
    (linear,) = (one for one in encoder.modules() if isinstance(one, torch.nn.Linear))
    with torch.no_grad():
        linear.weight.copy_(rows)
        linear.bias.zero_()
    return encoder


def of_images(record):
    """The record as if it were of images: advice about vectors is a sentence of its own."""
    return accuracy_sentence({**record, "raw_is": "pixels"})


def test_a_model_that_drops_the_noise_beats_the_raw_vectors():
    found = neighbour_accuracy(encoder_of([[1, 0, 0, 0], [0, 0, 0.01, 0]]), vectors(200, 0), vectors(100, 1), CPU)
    assert (found["queries"], found["gallery"], found["classes"], found["raw_is"]) == (200, 100, 2, "vectors")
    assert found["model"]["value"] == 1.0
    assert found["raw"]["low"] < found["raw"]["value"] < found["raw"]["high"] < found["model"]["low"]
    assert found["gain"]["value"] == pytest.approx(1 - found["raw"]["value"])
    assert beats_raw(found)
    assert "do not" not in of_images(found)
    json.dumps(found, allow_nan=False)


def test_a_model_that_drops_the_signal_is_named_worse():
    found = neighbour_accuracy(encoder_of([[0, 0, 1, 0], [0, 0, 0, 1]]), vectors(200, 0), vectors(100, 1), CPU)
    assert not beats_raw(found)
    assert of_images(found).endswith("The model is worse than raw pixels: do not use it.")


def test_the_input_itself_does_not_beat_itself():
    found = neighbour_accuracy(encoder_of(torch.eye(4).tolist()), vectors(200, 0), vectors(100, 1), CPU)
    assert found["model"] == found["raw"]
    assert "not better than raw pixels by more than chance" in of_images(found)
    # Vectors, and networks with trained weights, can be as good as can be without training.
    assert accuracy_sentence(found).endswith(" The model is not shown to be better than raw vectors.")
    before = accuracy_sentence({**found, "raw_is": "network"})
    assert before.endswith(" The model is not shown to be better than the network before training.")


def test_few_queries_show_nothing():
    found = neighbour_accuracy(encoder_of([[1, 0, 0, 0], [0, 0, 0.01, 0]]), vectors(6, 0), vectors(100, 1), CPU)
    assert not beats_raw(found)
    assert "6 queries cannot show a difference" in of_images(found)


def test_only_trained_classes_count_and_large_sets_are_sampled(monkeypatch):
    encoder, queries = encoder_of(torch.eye(4).tolist()), vectors(60, 0)
    trained = vectors(50, 1)
    other = LabelledSamples(queries.pixels, np.where(queries.class_names == "1", "new", "0"))
    (which, found), *more = known_class_accuracy(encoder, other, trained, CPU).items()
    assert (which, found["queries"], found["classes"], more) == (KNOWN_CLASSES, 30, 1, [])
    nothing = LabelledSamples(queries.pixels, np.full(60, "new"))
    assert known_class_accuracy(encoder, nothing, trained, CPU) == {}
    assert known_class_accuracy(encoder, queries.rows(np.arange(0)), trained, CPU) == {}
    monkeypatch.setattr(accuracy, "MOST", 20)
    found = known_class_accuracy(encoder, queries, trained, CPU)[KNOWN_CLASSES]
    assert (found["queries"], found["gallery"]) == (20, 20)


def test_pixels_are_scaled_as_for_the_network_and_large_images_averaged():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 64, 64, 3), dtype=np.uint8)
    preprocess = Preprocess(64, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    rows = raw_features(preprocess, pixels)
    assert rows.shape == (3, 3 * 32 * 32)
    small = pixels.reshape(3, 32, 2, 32, 2, 3).mean(axis=(2, 4)) / 255
    expected = ((small - 0.5) / 0.25).transpose(0, 3, 1, 2).reshape(3, -1)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows.numpy(), expected, atol=1e-5)


def test_versions_report_it(first, second):
    for folder in (first, second):
        info = Encoder.from_pretrained(folder).info
        found = info["accuracy"][KNOWN_CLASSES]
        assert found["raw_is"] == "pixels"
        assert found["queries"] > 0
        assert found["gallery"] == info["data"]["images"] + info["data"]["replayed"]
        assert 0 <= found["model"]["low"] <= found["model"]["value"] <= found["model"]["high"] <= 1
