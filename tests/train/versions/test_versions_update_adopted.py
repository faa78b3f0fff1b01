"""From stored vectors of a foreign model to trained versions: adopt, update, update, check."""

import json
import shutil

import numpy as np
import pytest
import torch
from letters_on_disk import SIZE, write_folder

from holdfast.checks import check
from holdfast.cli.start import print_version
from holdfast.core.errors import HoldfastError
from holdfast.embedders.embed_in_memory import embed
from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.experiments.update_recipes import update_from_recipe as update
from holdfast.train.versions import VersionSettings, adopt, read_adopted, report_versions
from holdfast.train.versions import update as update_in_python
from holdfast.vectors import feature_set

QUICK = ["train.epochs=4", "train.batch_size=16", "data.size=16", "data.colour=grey", "backbone.width=8",
         "train.lr=0.01", "train.crop_padding=1", "train.flip=false", "held_out.share=0.4",
         "buffer.per_class=3"]  # fmt: skip


@pytest.fixture(scope="module")
def old_model():
    torch.manual_seed(5)
    preprocess = Preprocess(size=SIZE, mean=(0.4,), std=(0.3,), colour="grey")
    return Encoder(build_backbone("small", width=8), preprocess=preprocess)


@pytest.fixture(scope="module")
def adopted(photos, letters, old_model, tmp_path_factory):
    """The stored vectors of nine classes under a model of which only they are left, adopted in three ways."""
    top = tmp_path_factory.mktemp("adopted")
    found = embed(old_model, photos / "all").features
    features, ids = np.asarray(found.rows.block(0, len(found))), [str(one) for one in found.ids]
    assert (photos / "all" / ids[0]).is_file()  # ids are paths in the folder
    np.savez(top / "store.npz", features=features, ids=ids, labels=found.labels)
    for way in ("means", "projection", "unchanged"):
        adopt(top / "store.npz", out=top / way, way=way, resamples=100, steps=5)
    return top


def run(model, data, out, **options):
    said = []
    info = update(model, data, out, device="cpu", on_event=said.append, **options)
    return info, [event.text for event in said if event.kind == "warning"]


@pytest.fixture(scope="module")
def first(adopted, photos):
    info, warnings = run(adopted / "means", photos / "1", adopted / "1", overrides=QUICK, replace_with="small")
    return adopted / "1", info, warnings


def test_labels_that_were_moved_are_not_needed(adopted, photos, tmp_path):
    """Nor are those in the file read, which has none that could be used."""
    with np.load(adopted / "store.npz") as arrays:
        np.savez(tmp_path / "store.npz", **{**arrays, "labels": np.full(len(arrays["ids"]), "")})
        (tmp_path / "labels.txt").write_text("\n".join(arrays["labels"].tolist()))
    store = tmp_path / "store.npz"
    adopt(store, labels=tmp_path / "labels.txt", out=tmp_path / "0", way="means", resamples=100, steps=5)
    (tmp_path / "labels.txt").unlink()
    moved = store.rename(tmp_path / "moved.npz")
    run(tmp_path / "0", photos / "1", tmp_path / "1", overrides=QUICK, replace_with="small", stored=moved)


def test_the_first_version_is_trained_into_the_space_of_the_stored_vectors(first, adopted, photos, old_model):
    folder, info, warnings = first
    assert (info["task"], info["reference"], info["start"], info["method"]) == (1, "loaded", "scratch", "means_hoc")
    assert info["parent"]["name"] == "means"
    encoder = Encoder.from_pretrained(folder)
    assert encoder.dim == read_adopted(adopted / "means").dim
    assert not warnings  # every training image has its vector
    images = [str(file) for file in sorted((photos / "1").rglob("*.png"))]
    cosines = (encoder.encode(images) * old_model.encode(images)).sum(1)
    torch.manual_seed(0)
    fresh = Encoder(build_backbone("small", width=8), preprocess=old_model.preprocess)
    assert cosines.mean() > (fresh.encode(images) * old_model.encode(images)).sum(1).mean() + 0.02


def test_the_check_compares_with_the_stored_vectors(first, adopted, old_model):
    folder, info, _ = first
    record = json.loads((folder / "check.json").read_text())
    held_out = json.loads((folder / "held_out.json").read_text())["images"]
    assert record["queries"] == record["gallery"] == len(held_out)
    files, labels = [one["path"] for one in held_out], [one["class"] for one in held_out]
    old, new = (model.encode(files).numpy() for model in (old_model, Encoder.from_pretrained(folder)))
    old, new = (feature_set("features", one, labels, files) for one in (old, new))
    again = check(old, old, new, leave_one_out=True)
    assert record["self_test"]["value"] == pytest.approx(again.self_test.value)
    assert record["cross_test"]["value"] == pytest.approx(again.cross_test.value)
    assert info["evidence"][0]["name"] == "means"
    assert "it is an adopted model without a network" in info["old_items"][0]["not_measured"]


def test_adopt_update_update_check(first, adopted, photos):
    folder, _, _ = first
    info, _ = run(folder, photos / "2", adopted / "2", overrides=["train.epochs=2"])
    assert (info["task"], info["reference"], info["parent"]["name"]) == (2, "previous", "1")
    assert info["data"]["replayed"] == 9
    names = [one["name"] for one in info["old_items"]]
    assert names == ["1", "means"]
    files = sorted((photos / "all").rglob("*.png"))
    store = np.load(adopted / "store.npz")
    row = {name: number for number, name in enumerate(store["ids"])}
    old = store["features"][[row[f"{file.parent.name}/{file.name}"] for file in files]]
    labels = [file.parent.name for file in files]
    new = Encoder.from_pretrained(adopted / "2").encode([str(file) for file in files]).numpy()
    ids = [str(file) for file in files]
    old, new = (feature_set("features", one, labels, ids) for one in (old, new))
    found = check(old, old, new, new, leave_one_out=True)
    assert found.queries == len(files)
    assert found.kept.value > 0
    report = report_versions([adopted / "2"], device="cpu")
    assert [one["number"] for one in report["versions"]] == [1, 2]
    assert "is an adopted model" in report["notes"][0]


def test_a_projection_is_trained_into_with_its_slots(adopted, photos, capsys):
    info, _ = run(adopted / "projection", photos / "2", adopted / "p1", overrides=QUICK, replace_with="small")
    model = read_adopted(adopted / "projection")
    assert info["method"] == "simplex_hoc"
    assert info["slots"]["num_slots"] == model.registry.num_slots
    assert {name: info["slots"]["owners"][name] for name in ("03", "04")} == {
        name: model.registry.owners[name] for name in ("03", "04")
    }
    print_version(adopted / "p1", info, json=False)  # two classes were trained, and nine have a slot
    assert f"; 9 of {model.registry.num_slots} slots taken" in " ".join(capsys.readouterr().out.split())


def test_more_classes_than_slots_of_a_projection(adopted, letters, tmp_path):
    adopt(adopted / "store.npz", out=tmp_path / "0", way="projection", slots=10, resamples=100, steps=5)
    data = write_folder(letters, [0, 1, 2], tmp_path / "data")
    for name in ("01", "02"):
        (data / name).rename(data / f"new {name}")
    with pytest.raises(
        HoldfastError, match=r"2 new classes, but 1 of 10 slots are free.* adopt the vectors again with"
    ):
        run(tmp_path / "0", data, tmp_path / "1", overrides=QUICK, replace_with="small")


def test_vectors_of_the_adopted_model_train_a_head_on_them(adopted, tmp_path):
    store = np.load(adopted / "store.npz")
    some = np.isin(store["labels"], ["00", "01", "02", "03"])
    np.savez(tmp_path / "some.npz", features=store["features"][some], labels=store["labels"][some])
    for way, method in (("unchanged", "cosine_hoc"), ("projection", "simplex_hoc")):
        out = adopted / f"vectors-{way}"
        info, _ = run(adopted / way, tmp_path / "some.npz", out, overrides=["train.epochs=1"])
        assert (info["task"], info["method"], info["reference"]) == (1, method, "loaded")
        before, after = read_adopted(adopted / way).encoder, Encoder.from_pretrained(out)
        cosines = (before.encode(store["features"]) * after.encode(store["features"])).sum(1)
        assert cosines.min() > 0.9  # the head begins as the adopted model
        assert "kind" in info["old_items"][0]  # bridges are measured, because both models take these vectors
    np.savez(tmp_path / "others.npz", features=store["features"][~some], labels=store["labels"][~some])
    info, _ = run(adopted / "vectors-unchanged", tmp_path / "others.npz", tmp_path / "2", overrides=["train.epochs=1"])
    assert info["task"] == 2


def test_images_without_a_stored_vector_are_only_classified(adopted, photos, letters, tmp_path):
    data = write_folder(letters, [0, 1], tmp_path / "data")
    for name in ("00", "01"):
        shutil.copytree(data / name, tmp_path / "data" / f"new {name}")
    for file in (tmp_path / "data").glob("new */*.png"):
        file.write_bytes((photos / "all" / "05" / sorted((photos / "all" / "05").iterdir())[0].name).read_bytes())
    info, warnings = run(adopted / "means", tmp_path / "data", tmp_path / "1", overrides=QUICK, replace_with="small")
    assert any("have no stored vector and are only classified" in text for text in warnings)
    assert info["data"]["classes"] == 4


def test_the_vectors_may_have_been_moved(adopted, photos, tmp_path):
    shutil.copytree(adopted, tmp_path / "moved")
    (tmp_path / "moved" / "store.npz").rename(tmp_path / "elsewhere.npz")
    record = json.loads((tmp_path / "moved" / "means" / "adopted.json").read_text())
    assert record["features"]["path"] == str(adopted / "store.npz")
    np.savez(tmp_path / "other.npz", features=np.ones((3, 32)))
    with pytest.raises(HoldfastError, match="not the features that"):
        run(adopted / "means", photos / "1", tmp_path / "1", stored=tmp_path / "other.npz", replace_with="small")
    settings = VersionSettings("means_hoc", backbone="small", size=16, colour="grey")
    settings = VersionSettings.from_tables({**settings.tables(), "train": {"epochs": 1, "batch_size": 16}})
    info = update_in_python(adopted / "means", photos / "1", tmp_path / "2", settings=settings, device="cpu",
                            stored=tmp_path / "elsewhere.npz")  # fmt: skip
    assert info["task"] == 1


@pytest.mark.parametrize(
    ("way", "options", "message"),
    [
        ("means", {"overrides": ["method.name=er"]}, "this method reads no old features"),
        ("means", {"overrides": ["method.name=simplex_hoc"]}, "--from: the adopted space has no simplex"),
        ("projection", {"overrides": ["method.name=means_hoc"]}, "--from: the adopted space is a simplex of"),
        ("means", {"overrides": ["method.dim=5"]}, "has 32 dimensions, the trained model 5"),
        ("means", {"buffer_from": "all"}, "after an adopted model give all images as data"),
        ("means", {"replace_with": "means"}, "name a backbone and not a folder"),
        ("no ids", {}, "has no ids, so its vectors cannot be found for images"),
        ("other ids", {}, "none of its stored vectors has an id that is the end of a training image's path"),
        ("short ids", {}, "is the end of two paths"),
    ],
)
def test_what_does_not_fit_is_refused_before_training(way, options, message, adopted, photos, tmp_path):
    model, data = adopted / way, photos / "1"
    if not model.exists():
        store = np.load(adopted / "store.npz")
        ids = {"no ids": {}, "other ids": {"ids": [f"item {row}" for row in range(len(store["ids"]))]},
               "short ids": {"ids": ["same.png", *store["ids"][1:]]}}[way]  # fmt: skip
        np.savez(tmp_path / "store.npz", features=store["features"], **ids)
        adopt(tmp_path / "store.npz", out=tmp_path / "model", way="unchanged", resamples=100)
        model = tmp_path / "model"
    if way == "short ids":
        shutil.copytree(data, tmp_path / "data")
        data = tmp_path / "data"
        for folder in data.iterdir():
            sorted(folder.iterdir())[0].rename(folder / "same.png")
    options = {"replace_with": "small", **options}
    options = {key: photos / value if key == "buffer_from" else value for key, value in options.items()}
    if options["replace_with"] == "means":
        options["replace_with"] = str(adopted / "means")
    overrides = [*(QUICK if "small" in options["replace_with"] else []), *options.pop("overrides", [])]
    with pytest.raises(HoldfastError, match=message):
        run(model, data, tmp_path / "out", overrides=overrides, **options)
    assert not (tmp_path / "out").exists()
