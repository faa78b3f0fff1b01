"""From ``fit`` to a search: models trained in Python carry the slots that a gallery compares."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from holdfast import METHODS, Encoder, FitOptions, Gallery, Preprocess, build_backbone, cl2r, fit, load_split
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item

pytest.importorskip("qdrant_edge")

OPTIONS = FitOptions(epochs=2, batch_size=16, flip=False)


@pytest.fixture(scope="module")
def images():
    return load_split("glyphs", "train", size=16, train_classes=6, test_classes=3, per_class_train=8)


def new_encoder(dim=None):
    torch.manual_seed(0)
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    return Encoder(build_backbone("small", width=8), dim, preprocess=preprocess)


def fitted_twice(images, folder, slots=6) -> tuple[Path, Path]:
    """Two models as the README trains them, the second held to the first; saved."""
    tasks = cl2r(images.labels, images.class_names, initial=4, increment=2).tasks
    method = METHODS["simplex_hoc"](slots=slots)
    encoder = new_encoder(method.feature_dim(32))
    fit(encoder, method, tasks[0], images, options=OPTIONS)
    encoder.save_pretrained(folder / "1")
    fit(encoder, method, tasks[1], images, old=copy.deepcopy(encoder), options=OPTIONS)
    encoder.save_pretrained(folder / "2")
    return folder / "1", folder / "2"


@pytest.fixture(scope="module")
def two_models(images, tmp_path_factory):
    return fitted_twice(images, tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("slots", [6, 50])
def test_from_fit_to_search(slots, images, tmp_path):
    """With 50 slots the scenario was not told of them."""
    first, second = fitted_twice(images, tmp_path, slots)
    owners = [Encoder.from_pretrained(folder).info["slots"]["owners"] for folder in (first, second)]
    assert [len(one) for one in owners] == [4, 6]
    assert owners[0].items() <= owners[1].items()
    gallery = Gallery.create(tmp_path / "gallery", first, device="cpu")
    gallery.add(Item(f"old {i}", image=images.images[i]) for i in range(20))
    version = gallery.register(second)
    assert (version.number, version.slots) == (2, slots)
    gallery.add(Item(f"new {i}", image=images.images[i]) for i in range(20, 40))
    hits = gallery.search(images.images[30], k=40)
    assert (hits[0].id, hits[0].version) == ("new 30", 2)
    assert hits[0].score == pytest.approx(1, abs=1e-5)
    assert {hit.version for hit in hits} == {1, 2}
    # Across versions the score is the cosine of the two models' features.
    query, stored = Encoder.from_pretrained(second), Encoder.from_pretrained(first)
    wanted = query.encode(images.images[30]) @ stored.encode(images.images[:20]).T
    scores = {hit.id: hit.score for hit in hits}
    assert [scores[f"old {i}"] for i in range(20)] == pytest.approx(wanted[0].tolist(), abs=1e-5)
    gallery.close()


def test_models_whose_slots_clash_are_refused(images, two_models, tmp_path):
    renamed = replace(images, class_names=tuple(f"other {name}" for name in images.class_names))
    first, second, *others = images.class_names
    swapped = replace(images, class_names=(second, first, *others))
    gallery = Gallery.create(tmp_path / "gallery", two_models[0], device="cpu")
    for other, reason in ((renamed, "slot 0 has two owners"), (swapped, "owns slot .* in one model and slot")):
        _, model = fitted_twice(other, tmp_path / other.class_names[0])
        with pytest.raises(HoldfastError, match=f"cannot be compared with those of version 1 .*{reason}"):
            gallery.register(model)
    _, larger = fitted_twice(images, tmp_path / "larger", slots=9)
    with pytest.raises(HoldfastError, match="one has 6 slots, the other 9"):
        gallery.register(larger)
    assert len(gallery.versions()) == 1
    assert gallery.register(two_models[1]).number == 2
    gallery.close()


def test_models_without_a_simplex_are_taken_without_slots(images, two_models, tmp_path):
    tasks = cl2r(images.labels, images.class_names, initial=4, increment=2).tasks
    encoder, folders = new_encoder(), [tmp_path / "1", tmp_path / "2"]
    method = METHODS["er"]()
    for task, folder in zip(tasks, folders):
        fit(encoder, method, task, images, options=OPTIONS)
        assert "slots" not in encoder.info
        encoder.save_pretrained(folder)
    gallery = Gallery.create(tmp_path / "gallery", folders[0], device="cpu")
    with pytest.raises(HoldfastError, match="has class slots, they have not"):
        gallery.register(two_models[0])
    assert gallery.register(folders[1]).slots is None
    gallery.close()
