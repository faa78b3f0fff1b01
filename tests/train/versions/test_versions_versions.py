"""What a version is made of, and what it hands on to the next."""

import hashlib
import json
import math
import shutil
import tomllib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from letters_on_disk import rolled, write_folder
from PIL import Image

from holdfast.core.checksums import verify_checksums
from holdfast.core.errors import HoldfastError
from holdfast.train.data.sampler import steps_per_epoch
from holdfast.train.encoders import Encoder
from holdfast.train.engine.model_slots import grow_models
from holdfast.train.events import Note
from holdfast.train.versions import start, update
from holdfast.train.versions.samples import ImageFiles, held_out_mask


def images_of(folder, stem):
    return json.loads((folder / f"{stem}.json").read_text())["images"]


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def test_the_first_version(first, photos):
    encoder = Encoder.from_pretrained(first)
    assert encoder.info["slots"] == {"num_slots": 12, "owners": {"00": 0, "01": 1, "02": 2}}
    assert Counter(item["class"] for item in images_of(first, "buffer")) == {"00": 3, "01": 3, "02": 3}
    held = {item["sha256"] for item in images_of(first, "held_out")}
    assert held
    assert not held & {item["sha256"] for item in images_of(first, "buffer")}
    assert encoder.info["data"]["images"] == 36 - len(held)
    assert encoder.encode([photos / "1" / "00" / one.name for one in (photos / "1" / "00").iterdir()]).shape == (12, 11)
    verify_checksums(first)


def test_the_second_goes_on_from_it(first, second):
    old, new = Encoder.from_pretrained(first).info, Encoder.from_pretrained(second).info
    assert new["slots"]["owners"] == {**old["slots"]["owners"], "03": 3, "04": 4}
    assert new["task"] == 2
    assert images_of(second, "buffer")[:9] == images_of(first, "buffer")
    assert len(images_of(second, "buffer")) == 15
    assert {item["sha256"] for item in images_of(first, "held_out")} < {
        item["sha256"] for item in images_of(second, "held_out")
    }
    assert new["data"]["replayed"] == 9


def test_an_update_has_about_as_many_steps_as_the_version_before(first, photos, tmp_path, monkeypatch):
    """Version 1: 2 epochs on 18 images are 4 steps of 8. Its update replays 9 of them beside the new ones."""
    monkeypatch.setattr("holdfast.train.versions.versions.FEWEST_EPOCHS", 1)
    data = photos / "all"
    notes = []

    def trained(name, **options):
        notes.clear()
        info = update(first, data, tmp_path / name, device="cpu", on_event=notes.append, **options)
        recipe = tomllib.loads((tmp_path / name / "recipe.toml").read_text(encoding="utf-8"))
        said = [one.text for one in notes if isinstance(one, Note) and "epoch" in one.text]
        return recipe["train"]["epochs"], said, info

    epochs, said, info = trained("same")
    assert steps_per_epoch(info["data"]["images"], info["data"]["replayed"], 8) > 4
    assert epochs == 1
    assert said == [
        "1 epoch instead of 2: about as many steps as the model before was trained; --set train.epochs=N sets another "
        "number"
    ]
    assert trained("given", changes=["train.epochs=2"])[:2] == (2, [])


def test_the_first_update_of_the_default_network_has_half_the_steps(photos, tmp_path, monkeypatch):
    """Version 1: 4 epochs. An epoch of an update has as many steps as one of version 1 or more."""
    monkeypatch.setattr("holdfast.train.versions.versions.FEWEST_EPOCHS", 1)
    small = ["train.batch_size=8", "backbone.width=4", "buffer.per_class=3", "held_out.share=0.3", "train.epochs=4"]
    start(photos / "1", tmp_path / "1", changes=small, device="cpu")
    events, steps = [], {}
    for number, data in ((2, "1"), (3, "all")):
        model, out = tmp_path / str(number - 1), tmp_path / str(number)
        extra = ["train.batch_size=8"]  # a setting that is not about the length
        info = update(model, photos / data, out, device="cpu", changes=extra, on_event=events.append)
        recipe = tomllib.loads((out / "recipe.toml").read_text(encoding="utf-8"))
        per_epoch = steps_per_epoch(info["data"]["images"], info["data"]["replayed"], 8)
        steps[number] = recipe["train"]["epochs"], per_epoch
    first = Encoder.from_pretrained(tmp_path / "1").info["data"]["images"]
    half = 4 * steps_per_epoch(first, 0, 8) / 2
    assert steps[2][0] == math.ceil(half / steps[2][1]) < 4
    assert steps[3][0] == 1  # as many steps as version 2, and its epochs are longer
    notes = [one.text.partition(";")[0] for one in events if isinstance(one, Note) and "epoch" in one.text]
    assert notes[0].endswith("instead of 4: about half as many steps as the model before was trained")
    assert notes[1:] in ([], [f"1 epoch instead of {steps[2][0]}: about as many steps as the model before was trained"])


def test_the_verdict_lies_beside_it(first, second):
    record = json.loads((second / "check.json").read_text())
    (entry, new, both) = Encoder.from_pretrained(second).info["evidence"]
    assert [one["which"] for one in (entry, new, both)] == ["known classes", "new classes", "all classes"]
    assert (entry["verdict"], entry["loss"]) == (record["verdict"], record["loss"])  # known classes decide
    assert record["which"] == "known classes"
    held_out = images_of(second, "held_out")
    assert both["queries"] == both["gallery"] == new["gallery"] == len(held_out)  # all that were ever held out
    known = [one for one in held_out if one["class"] in Encoder.from_pretrained(first).info["classes"]]
    assert entry["queries"] == entry["gallery"] == len(known)
    assert entry["queries"] + new["queries"] == both["queries"]
    assert entry["weights_sha256"] == json.loads((first / "config.json").read_text())["weights_sha256"]
    assert (second / "check.html").exists()


def test_which_images_are_held_out_depends_on_their_content_alone(photos):
    pictures = ImageFiles(16, "grey").find(photos / "all").samples
    held = held_out_mask(pictures, 0.3, frozenset())
    some = [row for row in range(len(pictures)) if row % 3]
    assert held_out_mask([pictures[row] for row in some], 0.3, frozenset()).tolist() == held[some].tolist()
    assert 0.1 < held.mean() < 0.5
    assert not held_out_mask(pictures, 0.0, frozenset()).any()
    wanted = frozenset({pictures[5].sha256})
    assert np.flatnonzero(held_out_mask(pictures, 0.0, wanted)).tolist() == [5]
    alone = [pictures[row] for row in np.flatnonzero(held)[:1]]
    assert not held_out_mask(alone, 0.3, frozenset()).any()  # a class is never held out as a whole
    copies = [alone[0], alone[0], replace(alone[0], class_name="other")]
    assert not held_out_mask(copies, 0.3, frozenset()).any()  # one content is trained on or held out, not both


def test_new_images_of_known_classes_alone(first, letters, photos, tmp_path):
    for row in range(6):  # others than those of version 1, of its class 01
        folder = tmp_path / "more" / "01"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(255 - letters.images[12 + row, ..., 0]).save(folder / f"{row}.png")
    info = update(first, tmp_path / "more", tmp_path / "2", device="cpu", changes=["buffer.per_class=4"])
    assert info["classes"] == ["00", "01", "02"]
    assert info["data"]["new_classes"] == 0
    assert info["slots"] == Encoder.from_pretrained(first).info["slots"]
    assert Counter(one["class"] for one in images_of(tmp_path / "2", "buffer")) == {"00": 3, "01": 4, "02": 3}


def test_the_whole_folder_again(first, photos, tmp_path):
    """What is in the buffer is not new as well, and what was held out stays so."""
    info = update(first, photos / "1", tmp_path / "2", device="cpu")
    held = len(images_of(first, "held_out"))
    assert info["data"]["images"] == 36 - held - 9
    assert len(images_of(tmp_path / "2", "held_out")) == held


def test_an_embedded_buffer_needs_no_files(second, letters, recipe, photos, tmp_path):
    here = write_folder(letters, (0, 1, 2), tmp_path / "here")
    start(here, tmp_path / "1", settings=recipe, changes=["buffer.embed=true"], device="cpu")
    shutil.rmtree(here)
    update(tmp_path / "1", photos / "2", tmp_path / "2", device="cpu")
    assert weights(tmp_path / "2") == weights(second)
    assert json.loads((tmp_path / "2" / "buffer.json").read_text())["embedded"]
    assert np.load(tmp_path / "2" / "buffer.npy").shape == (15, 16, 16, 1)
    assert (tmp_path / "2" / "check.json").read_bytes() != b""


def test_a_held_out_path_may_come_again_with_other_content(letters, recipe, tmp_path):
    """As a folder that is emptied and filled with images of the same names every month."""
    here = write_folder(letters, (0, 1, 2), tmp_path / "here")
    start(here, tmp_path / "1", settings=recipe, changes=["buffer.embed=true"], device="cpu")
    for file in here.rglob("*.png"):
        with Image.open(file) as image:
            changed = Image.fromarray(255 - np.asarray(image))
        changed.save(file)
    info = update(tmp_path / "1", here, tmp_path / "2", device="cpu", changes=["held_out.share=0.8"])
    paths = [item["path"] for item in images_of(tmp_path / "2", "held_out")]
    assert len(paths) > len(set(paths))
    assert info["task"] == 2


def test_slots_that_were_grown(first, letters, tmp_path, monkeypatch):
    model = shutil.copytree(first, tmp_path / "models" / "1")
    (tmp_path / "recipe.toml").write_text("")  # a file of the user's, and no sign that the model belongs to a run
    with pytest.raises(HoldfastError, match=r"slots grow .* --to 15 adds them"):
        update(model, rolled(letters, 12, tmp_path / "twelve"), tmp_path / "2", device="cpu")
    monkeypatch.setattr("holdfast.train.versions.plan.in_a_run", lambda folder: True)
    with pytest.raises(HoldfastError, match="--to 15 --out COPIES writes a model"):
        update(model, tmp_path / "twelve", tmp_path / "2", device="cpu")
    grow_models([model], 15)
    verify_checksums(model)
    info = update(model, tmp_path / "twelve", tmp_path / "2", device="cpu")
    assert info["slots"]["num_slots"] == 15
    assert len(info["slots"]["owners"]) == 15


@pytest.mark.parametrize("method", ["simplex_hoc", "er", "fan"])  # fan: no map is left where sizes differ
def test_another_network(method, first, photos, recipe, tmp_path):
    if method != "simplex_hoc":
        own = [f"method.name={method}"]
        start(photos / "1", tmp_path / "1", settings=recipe, changes=own, device="cpu")
        first = tmp_path / "1"
    wider = ["backbone.width=10"]
    info = update(first, photos / "2", tmp_path / "2", backbone="small", changes=wider, device="cpu")
    encoder = Encoder.from_pretrained(tmp_path / "2")
    assert encoder.feature_dim == 40
    assert encoder.preprocess == Encoder.from_pretrained(first).preprocess
    assert info["task"] == 2
    verdict = json.loads((tmp_path / "2" / "check.json").read_text())
    if method != "simplex_hoc":  # features of 32 and 40 numbers
        assert (verdict["verdict"], verdict["exit_code"]) == ("worse", 1)
    else:
        assert verdict["gain"] is not None
    update(tmp_path / "2", photos / "3", tmp_path / "3", device="cpu")


def test_another_model(first, photos, recipe, tmp_path):
    wider = ["backbone.width=10", "seed=8"]
    start(photos / "1", tmp_path / "other", settings=recipe, changes=wider, device="cpu")
    info = update(first, photos / "2", tmp_path / "2", backbone=str(tmp_path / "other"), device="cpu")
    assert Encoder.from_pretrained(tmp_path / "2").feature_dim == 40
    assert info["origin"]["model"] == "other"
    assert info["slots"]["owners"]["04"] == 4


def test_what_is_trained_on_does_not_judge(first, photos, tmp_path):
    told = []
    shutil.copytree(photos / "2", tmp_path / "some")
    shutil.copytree(photos / "3", tmp_path / "some", dirs_exist_ok=True)
    update(first, photos / "2", tmp_path / "2", check_on=tmp_path / "some", device="cpu", on_event=told.append)
    assert [event.text for event in told if event.kind == "warning"] == [
        "24 of 48 images to check on are trained on; left out"
    ]
    record = json.loads((tmp_path / "2" / "check.json").read_text())
    assert record["queries"] == record["gallery"] == 24


def test_no_image_that_any_version_was_trained_on_is_held_out_later(first, photos, tmp_path):
    """Version 2 holds nothing out of its images; version 3 gets them again and must not check on them."""
    update(first, photos / "2", tmp_path / "2", check_on=photos / "query" / "train", device="cpu")
    again = shutil.copytree(photos / "2", tmp_path / "again")
    shutil.copytree(photos / "3", again, dirs_exist_ok=True)
    update(tmp_path / "2", again, tmp_path / "3", device="cpu")
    delivered = {hashlib.sha256(file.read_bytes()).hexdigest() for file in (photos / "2").rglob("*.png")}
    held = {item["sha256"] for item in images_of(tmp_path / "3", "held_out")}
    assert len(delivered) == 24
    assert not delivered & held
    assert held - {item["sha256"] for item in images_of(first, "held_out")}, "nothing of the new images is held out"


def test_what_an_earlier_version_was_trained_on_does_not_judge(first, photos, tmp_path):
    said = []
    update(first, photos / "2", tmp_path / "2", check_on=photos / "1", device="cpu", on_event=said.append)
    held = len(images_of(first, "held_out"))
    assert f"{36 - held} of 36 images to check on are trained on; left out" in [
        event.text for event in said if event.kind == "warning"
    ]
    assert json.loads((tmp_path / "2" / "check.json").read_text())["queries"] <= held


def test_parts_of_the_network_are_frozen_in_an_update(first, photos, tmp_path):
    overrides = ['backbone.freeze=["stages"]']
    update(first, photos / "2", tmp_path / "2", changes=overrides, device="cpu")
    old, new = (Encoder.from_pretrained(folder).state_dict() for folder in (first, tmp_path / "2"))
    frozen = [name for name in old if name.startswith("backbone.stages") and "weight" in name]
    assert frozen
    assert all(torch.equal(old[name], new[name]) for name in frozen)
    assert tomllib.loads((tmp_path / "2" / "recipe.toml").read_text())["backbone"] == {"freeze": ["stages"]}
    with pytest.raises(HoldfastError, match=r"holds another version \(different: backbone\.freeze\)"):
        update(first, photos / "2", tmp_path / "2", changes=['backbone.freeze=["stages.0"]'], device="cpu")
    with pytest.raises(HoldfastError, match=r"backbone\.name: missing"):
        update(first, photos / "2", tmp_path / "3", changes=["backbone.width=3"], device="cpu")


def test_from_a_model_of_a_run(tiny_run, photos, tmp_path):
    """It has no buffer: the user is told, and may draw one."""
    told = []
    grow_models([tiny_run / "models" / "03"], 12, tmp_path / "grown")
    model = tmp_path / "grown" / "03"
    with pytest.raises(
        HoldfastError, match="no recipe of holdfast start, update or run is with it; give one by --recipe"
    ):
        update(model, photos / "1", tmp_path / "4", device="cpu")
    recipe = str(tiny_run / "recipe.toml")
    slots = ["method.slots=12", "train.epochs=1"]
    info = update(
        model, photos / "1", tmp_path / "4", settings=recipe, changes=slots, device="cpu", on_event=told.append
    )
    assert info["task"] == 4
    (warned,) = (event.text for event in told if event.kind == "warning")
    assert warned.endswith("--buffer-from FOLDER (buffer_from in Python) draws one")
    assert list(info["slots"]["owners"].values()) == list(range(9))


def test_from_a_pre_trained_model_slots_go_from_the_right(toy_models, photos, recipe, tmp_path):
    slots = ["method.slots=20", "preprocess={}"]
    info = update(toy_models / "four-simplex", photos / "1", tmp_path / "1", settings=recipe, changes=slots,
                  device="cpu")  # fmt: skip
    assert info["task"] == 1
    assert [info["slots"]["owners"][name] for name in ("00", "01", "02")] == [19, 18, 17]


def test_a_lost_buffer_is_drawn_anew(second, first, photos, tmp_path):
    shutil.copytree(first, tmp_path / "1")
    record = json.loads((tmp_path / "1" / "buffer.json").read_text())
    update(first, photos / "2", tmp_path / "2", buffer_from=photos / "all", device="cpu")
    found = images_of(tmp_path / "2", "buffer")[:9]
    assert Counter(one["class"] for one in found) == Counter(one["class"] for one in record["images"])
    assert all(one["path"].startswith(str(photos / "all")) for one in found)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("method", ["simplex_hoc", "simplex_hoc_views"])
def test_on_a_gpu(method, photos, recipe, tmp_path):
    own = ["method.slots=12", f"method.name={method}"]
    start(photos / "1", tmp_path / "1", settings=recipe, changes=own, device="cuda")
    info = update(tmp_path / "1", photos / "2", tmp_path / "2", device="cuda")
    assert len(info["evidence"]) == 3
    verify_checksums(tmp_path / "2")


def test_an_update_with_fewer_images_keeps_the_epochs(first, second):
    recipes = [tomllib.loads((one / "recipe.toml").read_text(encoding="utf-8")) for one in (first, second)]
    assert [recipe["train"]["epochs"] for recipe in recipes] == [2, 2]


def test_an_update_with_images_of_some_known_classes_only(photos, recipe, tmp_path):
    start(photos / "1", tmp_path / "1", settings=str(recipe), changes=["buffer.per_class=0"], device="cpu")
    shutil.copytree(photos / "1" / "00", tmp_path / "more" / "00")
    shutil.copytree(photos / "1" / "01", tmp_path / "more" / "01")
    info = update(tmp_path / "1", tmp_path / "more", tmp_path / "2", device="cpu")
    assert info["classes"] == ["00", "01", "02"]


def test_a_csv_is_as_good_as_a_folder(first, second, photos, tmp_path):
    rows = [f"{one.path},{one.class_name}" for one in ImageFiles(16, "grey").find(photos / "2").samples]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *rows[::-1]]))
    update(first, tmp_path / "list.csv", tmp_path / "2", device="cpu")
    assert weights(tmp_path / "2") == weights(second)
