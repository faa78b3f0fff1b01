"""Models whose backbone feature is stored and compared, in a gallery."""

import numpy as np
import pytest

from holdfast import Encoder, Gallery
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item


@pytest.fixture
def backbone_models(model_folders, tmp_path):
    """Models 1 and 2 with the readout "backbone": 32 numbers instead of 59."""
    found = []
    for folder in model_folders[:2]:
        encoder = Encoder.from_pretrained(folder)
        encoder.readout = "backbone"
        encoder.save_pretrained(tmp_path / folder.name)
        found.append(tmp_path / folder.name)
    return found


def test_items_are_stored_as_the_backbone_gives_them(backbone_models, picture_files, tmp_path):
    with Gallery.create(tmp_path / "gallery", backbone_models[0], device="cpu") as gallery:
        gallery.add(Item(file.name, path=file) for file in picture_files[:8])
        (version,) = gallery.versions()
        assert (version.dim, version.stored_dim, version.slots) == (32, 32, None)
        (hit,) = gallery.search(picture_files[3], k=1)
        assert hit.id == picture_files[3].name
        vector = Encoder.from_pretrained(backbone_models[0]).encode([picture_files[3]])[0].numpy()
        assert np.isclose(gallery.search(vector=vector, k=1)[0].score, 1, atol=1e-5)


def test_a_simplex_feature_does_not_join_without_a_bridge(backbone_models, model_folders, tmp_path):
    with (
        Gallery.create(tmp_path / "gallery", backbone_models[0], device="cpu") as gallery,
        pytest.raises(HoldfastError, match="class slots"),
    ):
        gallery.register(model_folders[1], bridge="none")
