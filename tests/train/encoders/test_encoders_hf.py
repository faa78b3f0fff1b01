"""Networks of transformers, offline."""

import http.server
import json
import socket
import sys
import threading
import time

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, build_backbone, rebuild_backbone

transformers = pytest.importorskip("transformers")

TINY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_register_tokens": 2,
}
# The published sizes of DINOv3 ViT-B/16.
VIT_B16 = {
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "patch_size": 16,
    "num_register_tokens": 4,
}
X = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32)


@pytest.fixture
def folder(tmp_path):
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model("dinov3_vit", **TINY))
    model.save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def test_model_type_from_its_configuration():
    network = build_backbone("hf:dinov3_vit", config=TINY).eval()
    assert network.feature_dim == 32
    assert network.pooling == "pooler"
    assert network.revision is None
    assert torch.equal(network(X), network.model(pixel_values=X).pooler_output)


def test_dinov3_vit_b16_builds():
    with torch.device("meta"):
        network = build_backbone("hf:dinov3_vit", config=VIT_B16, pooling="pooler")
    assert network.feature_dim == 768
    assert len([name for name, _ in network.named_parameters() if name.endswith("attention.q_proj.weight")]) == 12
    assert sum(p.numel() for p in network.parameters()) == pytest.approx(86e6, rel=0.01)


def test_encoder_round_trip_needs_neither_folder_nor_network(folder, tmp_path, monkeypatch):
    encoder = Encoder(build_backbone(f"hf:{folder}"), 7).eval()
    assert encoder.backbone.backbone_spec["name"] == "hf:dinov3_vit"
    assert encoder.backbone.backbone_spec["source"] == {"name": f"hf:{folder}", "revision": None}
    encoder.save_pretrained(tmp_path / "saved")
    for auto in (transformers.AutoConfig, transformers.AutoModel):
        monkeypatch.setattr(auto, "from_pretrained", lambda *a, **k: pytest.fail("looked for files"))
    again = Encoder.from_pretrained(tmp_path / "saved")
    assert torch.equal(again(X), encoder(X))
    assert again.backbone.backbone_spec == encoder.backbone.backbone_spec
    assert again.backbone.source == f"hf:{folder}"


def test_folder_gives_its_weights_and_a_config_file_does_not(folder):
    reference = transformers.AutoModel.from_pretrained(folder).eval()
    network = build_backbone(f"hf:{folder}")
    assert network.training
    assert torch.equal(network.eval()(X), reference(pixel_values=X).pooler_output)
    random = build_backbone(f"hf:{folder / 'config.json'}").eval()
    assert random.feature_dim == 32
    assert not torch.equal(random(X), network(X))


def test_pickled_or_incomplete_weights_are_refused(folder):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    dropped = sorted(name for name in tensors if "q_proj.weight" in name)[0]
    save_file({k: v for k, v in tensors.items() if k != dropped}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(HoldfastError, match=r"weights lack .*q_proj\.weight"):
        build_backbone(f"hf:{folder}")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(HoldfastError, match="never read; convert them to safetensors"):
        build_backbone(f"hf:{folder}")


def test_hub_id_is_loaded_at_its_revision_without_code_or_pickle(monkeypatch):
    calls = []
    monkeypatch.setattr("holdfast.train.encoders.hf._unreachable", lambda address: None)
    config = transformers.AutoConfig.for_model("dinov3_vit", **TINY)
    config._commit_hash = "c0ffee"
    model = transformers.AutoModel.from_config(config)
    report = {"missing_keys": set()}
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda n, **k: calls.append((n, k)) or config)
    monkeypatch.setattr(
        transformers.AutoModel, "from_pretrained", lambda n, **k: calls.append((n, k)) or (model, report)
    )
    network = build_backbone("hf:someone/model", revision="v2")
    assert [name for name, _ in calls] == ["someone/model"] * 2
    assert all(k["trust_remote_code"] is False and k["revision"] == "v2" for _, k in calls)
    assert calls[1][1]["use_safetensors"] is True
    assert network.revision == "c0ffee"
    assert network.backbone_spec["source"] == {"name": "hf:someone/model", "revision": "c0ffee"}
    assert rebuild_backbone(network.backbone_spec).revision == "c0ffee"


@pytest.fixture
def endpoint(monkeypatch):
    """Point the hub's client at a port of this machine where nothing listens."""
    import huggingface_hub.constants as constants

    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return constants


def test_without_a_hub_the_cache_is_used(endpoint, folder, monkeypatch):
    import huggingface_hub

    asked = []
    real = transformers.AutoConfig.from_pretrained
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda *a, **k: str(folder / "config.json"))
    for kind in (transformers.AutoConfig, transformers.AutoModel):
        read = kind.from_pretrained if kind is transformers.AutoModel else real
        monkeypatch.setattr(
            kind, "from_pretrained", lambda n, read=read, **k: asked.append(k["local_files_only"]) or read(folder, **k)
        )
    assert build_backbone("hf:someone/tiny").feature_dim == TINY["hidden_size"]
    assert asked == [True, True]


def test_a_hub_that_answers_is_asked_for_the_model(endpoint, monkeypatch):
    """Any answer counts, also one that says no."""

    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_error(403)

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuse) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr(endpoint, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        asked = []
        monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda n, **k: asked.append(k) or 1 / 0)
        with pytest.raises(HoldfastError, match="division by zero"):
            build_backbone("hf:someone/model")
        server.shutdown()
    assert [k["local_files_only"] for k in asked] == [False]


def test_a_pooler_without_trained_weights_is_not_used(tmp_path):
    from safetensors.torch import load_file, save_file

    small = {
        k: TINY[k] for k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size")
    }
    model = transformers.AutoModel.from_config(transformers.AutoConfig.for_model("vit", **small))
    model.save_pretrained(tmp_path)
    assert build_backbone(f"hf:{tmp_path}").pooling == "pooler"
    tensors = {k: v for k, v in load_file(tmp_path / "model.safetensors").items() if "pooler" not in k}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    network = build_backbone(f"hf:{tmp_path}").eval()
    assert network.pooling == "first_token"
    assert torch.equal(network(X), network.model(pixel_values=X).last_hidden_state[:, 0])
    network.pooling = "mean"
    assert torch.equal(network(X), network.model(pixel_values=X).last_hidden_state.mean(1))


def test_convolutional_model_gives_vectors():
    options = {"hidden_sizes": [8, 12], "depths": [1, 1], "embedding_size": 8, "layer_type": "basic"}
    network = build_backbone("hf:resnet", config=options).eval()
    assert network.feature_dim == 12
    assert network(X).shape == (2, 12)
    network.pooling = "mean"
    assert network(X).shape == (2, 12)


def test_broken_config_file_and_unknown_type(tmp_path):
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(HoldfastError, match=r"broken\.json"):
        build_backbone(f"hf:{tmp_path / 'broken.json'}")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "of_the_future"}))
    with pytest.raises(HoldfastError, match="of_the_future"):
        build_backbone(f"hf:{tmp_path}")


def test_code_in_a_folder_is_not_run(folder):
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    assert build_backbone(f"hf:{folder}").feature_dim == 32
    config["model_type"] = "unheard_of"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HoldfastError):
        build_backbone(f"hf:{folder}")


def test_a_saved_spec_is_never_looked_up_on_the_hub(monkeypatch):
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *a, **k: pytest.fail("went looking"))
    with pytest.raises(HoldfastError, match="is not in transformers"):
        rebuild_backbone({"name": "hf:someone/model", "options": {}})


def test_a_hub_that_cannot_be_reached_is_told_at_once(endpoint, monkeypatch):
    began = time.monotonic()
    with pytest.raises(HoldfastError, match=r"127\.0\.0\.1.* cannot be reached") as refused:
        build_backbone("hf:someone/model-that-nobody-has", revision="v2")
    assert time.monotonic() - began < 5
    message = str(refused.value)
    assert "hf download someone/model-that-nobody-has --revision v2 --local-dir FOLDER" in message
    assert message.endswith("give hf:FOLDER")
    assert len(message.splitlines()) == 1
    monkeypatch.setattr(endpoint, "HF_HUB_OFFLINE", True)
    with pytest.raises(HoldfastError, match="HF_HUB_OFFLINE is set"):
        build_backbone("hf:someone/model-that-nobody-has")


def test_missing_transformers_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(HoldfastError, match=r"'\.\[hf\]'"):
        build_backbone("hf:dinov3_vit")
