"""A gallery on a GPU gives the answers of one on the CPU."""

import numpy as np
import pytest
import torch

from holdfast import Gallery
from holdfast.gallery import Item

pytest.importorskip("qdrant_edge")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(params=["cuda", "auto"])
def pair(request, model_folders, tmp_path):
    """The same gallery on the CPU and on the GPU."""
    with (
        Gallery.create(tmp_path / "cpu", model_folders[0], device="cpu") as on_cpu,
        Gallery.create(tmp_path / "gpu", model_folders[0], device=request.param) as on_gpu,
    ):
        assert on_gpu.models.encoder(on_gpu.newest()).on_gpu
        yield on_cpu, on_gpu


def same_answers(on_cpu, on_gpu, pictures):
    """Scores of every item for ten queries, to 1e-4."""
    for picture in pictures[100:110]:
        expected, found = ({hit.id: hit for hit in one.search(picture, k=1000)} for one in (on_cpu, on_gpu))
        assert sorted(found) == sorted(expected)
        scores = np.array([(found[name].score, expected[name].score) for name in expected])
        np.testing.assert_allclose(scores[:, 0], scores[:, 1], atol=1e-4)
        assert {name: hit.version for name, hit in found.items()} == {n: hit.version for n, hit in expected.items()}


def weights_of(gallery):
    encoder = gallery.models.encoder(gallery.newest())
    return {weight.device.type for weight in encoder._encoder.parameters()}


def test_through_an_upgrade(pair, model_folders, picture_files, pictures):
    """Another network from version 3 on, so that both architectures and both ways to store are compared."""
    for gallery in pair:
        gallery.add(Item(file.stem, path=file, label=file.parent.name) for file in picture_files)
        gallery.add([Item("given", vector=np.ones(32)), Item("array", image=pictures[50])])
    same_answers(*pair, pictures)
    assert [weights_of(one) for one in pair] == [{"cpu"}, {"cuda"}]
    for model in model_folders[1:]:
        for gallery in pair:
            version = gallery.register(model, force=True)
            gallery.add([Item(f"new {version.number}", image=pictures[60 + version.number])])
        verdicts = [[(one["version"], one["queries"]) for one in gallery.newest().checks] for gallery in pair]
        assert verdicts[0] == verdicts[1]
        same_answers(*pair, pictures)
        assert [weights_of(one) for one in pair] == [{"cpu"}, {"cuda"}]
    moved = [gallery.backfill().progress.moved for gallery in pair]
    assert moved == [40, 40]
    same_answers(*pair, pictures)
    for gallery in pair:
        gallery.rollback(drop=True)
    same_answers(*pair, pictures)


def test_filled_on_one_device_and_searched_on_the_other(model_folders, picture_files, pictures, tmp_path):
    with Gallery.create(tmp_path / "g", model_folders[2], device="cuda") as gallery:
        gallery.add(Item(file.stem, path=file) for file in picture_files)
    scores = {}
    for device in ("cuda", "cpu"):
        with Gallery.open(tmp_path / "g", device=device) as gallery:
            scores[device] = {hit.id: hit.score for hit in gallery.search(pictures[0], k=40)}
    assert scores["cpu"] == pytest.approx(scores["cuda"], abs=1e-4)
    assert scores["cpu"]["000"] == pytest.approx(1, abs=1e-4)


def test_an_image_has_one_vector_whatever_the_batch(model_folders, pictures, tmp_path):
    """Convolutions are computed in float32; what the process had set is as before afterwards."""
    before = torch.backends.cudnn.conv.fp32_precision
    with Gallery.create(tmp_path / "g", model_folders[2], device="cuda") as gallery:
        gallery.add(Item(str(n), image=picture) for n, picture in enumerate(pictures))
        for n in range(20):
            (best,) = gallery.search(pictures[n], k=1)
            assert (best.id, best.score) == (str(n), pytest.approx(1, abs=1e-6))
    assert torch.backends.cudnn.conv.fp32_precision == before
