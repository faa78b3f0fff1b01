"""Defaults of ``start`` on images: chosen by the number and size of the images and by the network."""

import json

import numpy as np
import pytest
from PIL import Image

from holdfast import Encoder
from holdfast.core.errors import HoldfastError
from holdfast.train.versions import start, update
from holdfast.train.versions import version_defaults as defaults
from holdfast.train.versions.samples import ImageFiles
from holdfast.train.versions.version_defaults import ImageSurvey, default_epochs, default_settings, survey_images


def write_squares(top, side, per_class=6):
    """Two classes of noisy images: dark and bright."""
    draw = np.random.default_rng(side)
    for name, base in (("dark", 40), ("bright", 180)):
        for number in range(per_class):
            pixels = draw.integers(base, base + 60, (side, side + 8, 3), dtype=np.uint8)
            (top / name).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(top / name / f"{number}.png")
    return top


@pytest.mark.parametrize(("images", "epochs"), [(20, 300), (2_000, 48), (20_000, 15), (1_000_000, 15)])
def test_epochs_give_a_fixed_number_of_steps_within_bounds(images, epochs):
    assert default_epochs(images, batch_size=64) == epochs


def facts(settings):
    return settings.data.size, settings.backbone["stem_stride"], settings.train["crop_padding"]


def test_size_and_stem_follow_the_images():
    small, middle, large = (default_settings(vectors=False, images=ImageSurvey(2000, side)) for side in (28, 63, 640))
    assert facts(small) == (32, 1, 2)
    assert facts(middle) == (48, 1, 3)
    assert facts(large) == (64, 2, 4)
    assert default_settings(vectors=False).tables() == small.tables()


def test_the_survey_reads_headers_and_passes_over_broken_files(tmp_path):
    top = write_squares(tmp_path / "photos", 48)
    (top / "dark" / "broken.png").write_bytes(b"no image")
    assert survey_images(ImageFiles().find(top).samples) == ImageSurvey(12, 48)


def test_start_without_settings_uses_them(tmp_path, monkeypatch):
    monkeypatch.setattr(defaults, "FEWEST_EPOCHS", 1)
    monkeypatch.setattr(defaults, "MOST_EPOCHS", 2)
    data = write_squares(tmp_path / "photos", 70)
    info = start(data, tmp_path / "1", changes=["backbone.width=4", "held_out.share=0.4"], device="cpu")
    recipe = (tmp_path / "1" / "recipe.toml").read_text(encoding="utf-8")
    assert 'name = "small_resnet"' in recipe
    assert "epochs = 2" in recipe
    assert Encoder.from_pretrained(tmp_path / "1").preprocess.height_width == (64, 64)
    assert info["accuracy"]["known classes"]["raw_is"] == "pixels"
    more = write_squares(tmp_path / "more", 71)
    info = update(tmp_path / "1", more, tmp_path / "2", device="cpu")
    assert info["task"] == 2


def test_the_training_options_suit_the_network(tmp_path):
    own = default_settings(vectors=False, network="resnet18")
    assert (own.network, own.fit.optimizer, own.fit.lr) == ("resnet18", "adamw", 1e-3)
    (tmp_path / "config.json").write_text(json.dumps({"image_size": 96}))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4] * 3, "image_std": [0.2] * 3}))
    trained = default_settings(vectors=False, network=f"hf:{tmp_path}")
    fit = trained.fit
    assert (trained.data.size, fit.resized_crop, fit.crop_padding, fit.crop_scale) == (110, 96, 0, [0.16, 1.0])
    assert (fit.lr, fit.lr_groups, fit.warmup, fit.epochs) == (1e-3, {"backbone": 0.1}, 0.1, 10)
    assert trained.preprocess.model_dump() == {"mean": [0.4] * 3, "std": [0.2] * 3, "resize": 110, "unit": None}
    assert default_settings(vectors=False, network="hf:dinov2").data.size == 256


def test_network_and_recipe_exclude_each_other(tmp_path, recipe):
    data = write_squares(tmp_path / "photos", 32)
    with pytest.raises(HoldfastError, match="--backbone and --recipe cannot be combined"):
        start(data, tmp_path / "1", settings=recipe, backbone="resnet18")


def test_pretrained_weights_of_a_local_folder(tmp_path):
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=16, patch_size=8, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    weights = transformers.ViTModel(config)
    weights.save_pretrained(tmp_path / "vit")
    data = write_squares(tmp_path / "photos", 20)
    overrides = ["train.epochs=1", 'backbone.freeze=["*"]', "held_out.share=0.4"]
    info = start(data, tmp_path / "1", backbone=f"hf:{tmp_path / 'vit'}", changes=overrides, device="cpu")
    assert info["accuracy"]["known classes"]["queries"] > 0
    encoder = Encoder.from_pretrained(tmp_path / "1")
    assert encoder.preprocess.height_width == (16, 16)
    kept = dict(encoder.backbone.model.named_parameters())["embeddings.cls_token"]
    assert (kept == weights.embeddings.cls_token).all()
