"""What is evaluated is what is served: ``extract``, ``encode`` and the survey of a training give the same features."""

import numpy as np
import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet, canonical
from holdfast.train.data.device_images import DeviceImages
from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone, compact_basis, extract
from holdfast.train.engine.survey import image_features
from holdfast.train.geometry import unit

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def random_images(count: int, size: int, channels: int = 3) -> ImageSet:
    pixels = np.random.default_rng(0).integers(0, 256, (count, size, size, channels), dtype=np.uint8)
    return canonical(pixels, np.arange(count) % 3, ["a", "b", "c"], source="test")


def make_encoder(backbone: str = "resnet32", dim: int = 99, **options: int) -> Encoder:
    """In training mode, with running statistics that are not those of a fresh network."""
    torch.manual_seed(0)
    preprocess = Preprocess(size=16, mean=(0.5,) * 3, std=(0.25,) * 3)
    encoder = Encoder(build_backbone(backbone, **options), dim, preprocess=preprocess)
    for _ in range(3):
        encoder(torch.randn(8, 3, 16, 16))
    return encoder


@pytest.mark.parametrize("batch_size", [None, 1, 7])
def test_extract_is_encode(batch_size):
    encoder, images = make_encoder(), random_images(20, 16)
    found = extract(encoder, images, batch_size=batch_size)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    assert np.abs(found - encoder.encode(images.images).numpy()).max() <= 1e-6
    if batch_size is None:  # the same batches, memory format and arithmetic
        assert np.array_equal(found, encoder.encode(images.images).numpy())
        assert np.array_equal(found, encoder.encode(encoder.preprocess(images.images)).numpy())


def test_the_survey_of_a_training_gives_the_same_before_it_is_scaled():
    encoder, images = make_encoder(), random_images(20, 16)
    raw = image_features(encoder, encoder.preprocess, DeviceImages(images), torch.arange(20))
    assert not np.allclose(raw.norm(dim=1), 1, atol=0.1)
    assert np.abs(unit(raw).numpy() - extract(encoder, images)).max() <= 1e-6


def test_images_of_another_size_are_resized_as_encode_does():
    encoder, images = make_encoder(), random_images(6, 24)
    assert np.array_equal(extract(encoder, images), encoder.encode(images.images).numpy())


def test_vectors():
    vectors = np.random.default_rng(0).standard_normal((10, 1, 1, 12)).astype(np.float32)
    images = canonical(vectors, np.arange(10) % 3, ["a", "b", "c"], source="test")
    torch.manual_seed(0)
    encoder = Encoder(build_backbone("linear", in_channels=12, width=6), 5, preprocess=VectorInput(12, unit=True))
    found = extract(encoder, images, batch_size=4)
    assert np.abs(found - encoder.encode(images.images.reshape(10, 12)).numpy()).max() <= 1e-6


def test_modes_are_left_alone_and_progress_is_told():
    encoder, images, told = make_encoder(), random_images(10, 16), []
    encoder.backbone.layer1.eval()
    modes = [module.training for module in encoder.modules()]
    extract(encoder, images, batch_size=4, progress=told.append)
    assert told == [4, 8, 10]
    assert set(modes) == {True, False}
    assert [module.training for module in encoder.modules()] == modes


def test_autocast_around_the_call_changes_nothing():
    encoder, images = make_encoder(), random_images(5, 16)
    basis = compact_basis(encoder)
    wanted = [extract(encoder, images), extract(encoder, images, basis=basis)]
    with torch.autocast("cpu", torch.bfloat16):
        found = [extract(encoder, images), extract(encoder, images, basis=basis)]
    assert all(np.array_equal(a, b) for a, b in zip(found, wanted))


def test_extract_needs_to_know_what_to_do_with_images():
    with pytest.raises(HoldfastError, match="no preprocess"):
        extract(Encoder(build_backbone("small", width=8)), random_images(1, 16, 1))
    with pytest.raises(HoldfastError, match="batch_size must be at least 1, got 0"):
        extract(make_encoder(), random_images(1, 16), batch_size=0)


@needs_gpu
@pytest.mark.parametrize("backbone", ["resnet32", "resnet18"])
def test_on_a_gpu_extract_encode_and_the_survey_agree(backbone):
    """The networks that have kernels of this project's own, which are for training alone."""
    encoder, images = make_encoder(backbone), random_images(500, 16)
    found = extract(encoder, images, device="cuda")
    assert np.abs(found - encoder.encode(images.images).numpy()).max() <= 1e-5
    assert np.abs(found - encoder.encode(encoder.preprocess(images.images)).numpy()).max() <= 1e-5
    on_gpu = DeviceImages(images, "cuda")
    raw = image_features(encoder, encoder.preprocess, on_gpu, torch.arange(500, device="cuda"))
    assert np.abs(unit(raw).cpu().numpy() - found).max() <= 1e-5


@needs_gpu
def test_on_a_gpu_a_model_read_from_its_folder_gives_what_was_evaluated(tmp_path):
    encoder, images = make_encoder(), random_images(500, 16)
    found = extract(encoder, images, device="cuda")
    encoder.save_pretrained(tmp_path / "model")
    served = Encoder.from_pretrained(tmp_path / "model", device="cuda")
    assert np.abs(served.encode(images.images).numpy() - found).max() <= 1e-5


@needs_gpu
def test_on_a_gpu_without_tf32_batches_of_any_size_agree(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    encoder, images = make_encoder(), random_images(100, 16)
    found = extract(encoder, images, device="cuda")
    for size in (1, 7, 64):
        assert np.abs(found - encoder.encode(images.images, batch_size=size).numpy()).max() <= 1e-5, size
    assert np.abs(found - encoder.to("cpu").encode(images.images).numpy()).max() <= 1e-5
