"""What ``holdfast gallery add`` says of images that are not added, or that take another's place."""

import json

import pytest
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery
from holdfast.train.encoders import Encoder, VectorInput, build_backbone

pytest.importorskip("qdrant_edge")


def images(folder, *names):
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(30 * number).resize((16, 16)).save(folder / name)
    return folder


@pytest.fixture
def gallery(holdfast, tiny_run, tmp_path):
    holdfast("gallery", "create", tmp_path / "g", "--model", tiny_run / "models" / "01")
    return tmp_path / "g"


def test_items_that_are_replaced_are_counted(gallery, holdfast, holdfast_json, tmp_path):
    spring = images(tmp_path / "spring", "cup/1.png", "cup/2.png")
    summer = images(tmp_path / "summer", "cup/1.png", "cup/3.png")
    assert holdfast_json("gallery", "add", gallery, spring)["replaced"] == 0
    said = holdfast("gallery", "add", gallery, summer)
    assert "2 added, 0 refused" in said
    assert "1 of them replaced" in said
    assert holdfast_json("gallery", "add", gallery, summer)["replaced"] == 2


def test_two_images_of_one_id_in_one_command_are_refused(gallery, holdfast, tmp_path):
    spring, summer = images(tmp_path / "spring", "1.png"), images(tmp_path / "summer", "1.png")
    with pytest.raises(HoldfastError, match=r"spring/1.png and .*summer/1.png: both would have the id '1.png'"):
        holdfast("gallery", "add", gallery, spring, summer)
    assert "1 added" in holdfast("gallery", "add", gallery, spring, spring)  # the same file twice is no loss


def test_other_files_are_counted_and_hidden_ones_are_not_looked_at(gallery, holdfast, holdfast_json, tmp_path):
    shown = images(tmp_path / "shown", "1.png")
    for name in ("camera.cr2", "notes.txt", "._1.png", ".cache/2.png"):
        (shown / name).parent.mkdir(exist_ok=True)
        (shown / name).write_bytes(b"no image")
    assert holdfast_json("gallery", "add", gallery, shown) == {
        "added": 1, "replaced": 0, "refused": [], "ignored": 2, "list": None
    }  # fmt: skip
    assert "2 other files passed over" in holdfast("gallery", "add", gallery, shown)
    (shown / "1.png").unlink()
    with pytest.raises(HoldfastError, match=r"no images there; an image is a file named \.avif, "):
        holdfast("gallery", "add", gallery, shown)


def test_ctrl_c_says_what_is_stored(gallery, holdfast, monkeypatch, tmp_path):
    def interrupted(self, items, *, progress, **others):
        progress(1)
        raise KeyboardInterrupt

    monkeypatch.setattr(Gallery, "add", interrupted)
    from typer.testing import CliRunner

    from holdfast.cli import app

    done = CliRunner().invoke(app, ["gallery", "add", str(gallery), str(images(tmp_path / "a", "1.png"))])
    assert done.exit_code == 130
    assert "interrupted; 1 of 1 images are stored" in done.stderr


def test_a_model_of_vectors_says_so_and_not_a_hundred_times(holdfast, tmp_path):
    encoder = Encoder(build_backbone("identity", in_channels=8), 8, preprocess=VectorInput(8))
    encoder.save_pretrained(tmp_path / "model")
    holdfast("gallery", "create", tmp_path / "g", "--model", tmp_path / "model")
    shown = images(tmp_path / "shown", *(f"{number}.png" for number in range(12)))
    from typer.testing import CliRunner

    from holdfast.cli import app

    done = CliRunner().invoke(app, ["gallery", "add", str(tmp_path / "g"), str(shown)])
    assert done.stderr.count("the model takes vectors of 8 numbers, not images") == 10
    assert "... and 2 more: the list has them all" in done.stderr
    assert len((tmp_path / "g.unreadable.csv").read_text().splitlines()) == 13
    found = json.loads(holdfast("gallery", "add", tmp_path / "g", shown, "--json", status=1))
    assert len(found["refused"]) == 12


def test_versions_are_shown_by_paths_from_here(gallery, holdfast, holdfast_json, tiny_run, monkeypatch):
    monkeypatch.chdir(tiny_run)
    assert "version 1 is from models/01\n" in holdfast("gallery", "versions", gallery)
    assert holdfast_json("gallery", "versions", gallery)[0]["source"] == str(tiny_run / "models" / "01")
    with Gallery.open(gallery), pytest.raises(HoldfastError, match=r"open elsewhere.* holdfast serve"):
        Gallery.open(gallery)
