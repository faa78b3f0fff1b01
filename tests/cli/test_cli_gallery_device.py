"""``--device`` of the verbs that embed: handed down, and refused in one line where there is no such device."""

import json

import pytest
import torch
from PIL import Image

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder

pytest.importorskip("qdrant_edge")


@pytest.fixture
def pictures(tmp_path):
    for number in range(24):  # enough for the check of a model that is registered
        file = tmp_path / "shown" / f"kind{number % 2}" / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(15 * number).resize((16, 16)).save(file)
    return tmp_path / "shown"


def verbs(folder, models, pictures):
    """Every verb that embeds, in an order that works."""
    return (
        ("create", folder, "--model", models / "01"),
        ("add", folder, pictures, "--labels-from-folders"),
        ("search", folder, pictures / "kind0" / "0.png"),
        ("register", folder, models / "02", "--force"),
        ("backfill", folder),
        ("rollback", folder),
    )


def test_every_verb_embeds_where_it_is_told(holdfast, tiny_run, pictures, tmp_path, monkeypatch):
    """``cpu:0`` is a device of another name than the default, which every machine has."""
    devices, encode = [], Encoder.encode

    def recorded(self, images, **options):
        devices.append(options.get("device"))
        return encode(self, images, **options)

    monkeypatch.setattr(Encoder, "encode", recorded)
    for words in verbs(tmp_path / "g", tiny_run / "models", pictures):
        devices.clear()
        holdfast("gallery", *words, "--device", "cpu:0")
        assert set(devices) == (set() if words[0] == "create" else {torch.device("cpu:0")}), words


def test_no_gpu_is_said_in_one_line(holdfast, command, tiny_run, pictures, tmp_path, monkeypatch):
    folder = tmp_path / "g"
    create, *others = verbs(folder, tiny_run / "models", pictures)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = command("gallery", *create, "--device", "cuda")
    assert done.returncode == 1
    assert done.stderr == "holdfast: device 'cuda' cannot be used: torch sees no GPU; use cpu\n"
    assert not folder.exists()
    holdfast("gallery", *create)
    for words in others:
        with pytest.raises(HoldfastError, match="device 'cuda' cannot be used: torch sees no GPU; use cpu"):
            holdfast("gallery", *words, "--device", "cuda")
        with pytest.raises(HoldfastError, match="unknown device 'gpu'; use auto, cpu, cuda or cuda:N"):
            holdfast("gallery", *words, "--device", "gpu")
    assert json.loads(holdfast("gallery", "stats", folder, "--json"))["items"] == 0


def test_attach_says_it_before_it_makes_the_folder(holdfast, tiny_run, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ("qdrant:nowhere", "--table", "t", "--model", tiny_run / "models" / "01", "--out", tmp_path / "a")
    with pytest.raises(HoldfastError, match="torch sees no GPU"):
        holdfast("gallery", "attach", *words, "--device", "cuda")
    assert not (tmp_path / "a").exists()
