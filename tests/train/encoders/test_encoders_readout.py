"""The readout of an encoder: which feature is stored and compared."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from holdfast import Encoder, Preprocess, build_backbone
from holdfast.core.errors import HoldfastError
from holdfast.train.data import ImageSet
from holdfast.train.encoders import compact_basis, extract
from holdfast.train.encoders.compact import compact_dim

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 16, 16, 1), dtype=np.uint8)


def encoder(readout="simplex", dim=20):
    torch.manual_seed(0)
    preprocess = Preprocess(size=16, mean=(0.5,), std=(0.5,), colour="grey")
    return Encoder(build_backbone("small", width=2), dim, preprocess=preprocess, readout=readout).eval()


def test_backbone_readout_gives_the_feature_before_the_projection():
    model = encoder("backbone")
    x = model.preprocess.normalise(model.preprocess.stack(list(IMAGES)))
    with torch.no_grad():
        before = F.normalize(model.backbone(x), dim=1)
    assert (model.embedding_dim, model.dim) == (8, 20)
    torch.testing.assert_close(model.encode(list(IMAGES)), before)
    assert model(x).shape == (6, 20)  # training does not change


def test_extract_reads_what_encode_reads():
    model = encoder("backbone")
    images = ImageSet(IMAGES, np.array([0, 1, 0, 1, 0, 1]), ("a", "b"), "fingerprint")
    np.testing.assert_allclose(extract(model, images), model.encode(list(IMAGES)).numpy(), atol=1e-6)


def test_readout_is_saved_with_the_model(tmp_path):
    encoder("backbone").save_pretrained(tmp_path / "model")
    assert Encoder.from_pretrained(tmp_path / "model").readout == "backbone"


def test_backbone_features_are_stored_as_they_are():
    assert compact_basis(encoder("simplex")).shape == (20, 8)
    assert compact_basis(encoder("backbone")) is None
    assert compact_dim(encoder("backbone")) == 8


def test_a_model_without_a_readout_is_read_as_simplex(tmp_path):
    encoder().save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    del config["readout"]
    (tmp_path / "model/config.json").write_text(json.dumps(config))
    assert Encoder.from_pretrained(tmp_path / "model").readout == "simplex"


@pytest.mark.parametrize("wrong", ["feature", 3, None, ["backbone"]])
def test_an_unknown_readout_is_refused(wrong, tmp_path):
    with pytest.raises(HoldfastError, match="readout must be one of simplex, backbone"):
        encoder(wrong)
    encoder().save_pretrained(tmp_path / "model")
    config = json.loads((tmp_path / "model/config.json").read_text())
    (tmp_path / "model/config.json").write_text(json.dumps({**config, "readout": wrong}))
    with pytest.raises(HoldfastError, match=r"config\.json: readout must be"):
        Encoder.from_pretrained(tmp_path / "model")
