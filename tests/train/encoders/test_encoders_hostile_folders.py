"""A model folder alone reaches neither the network nor a pickle nor other code, with timm and with transformers."""

import json
import pickle
import socket
import sys

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders import Encoder, build_backbone, rebuild_backbone
from holdfast.train.encoders.named_backbone import named_backbone
from stub_timm import make_stub

transformers = pytest.importorskip("transformers")  # before a stub of timm is there, which it would look into
EVIL = "evil/model"
PLAIN_TIMM = {"name": "timm:vit_tiny.augreg", "options": {"img_size": [32, 32], "act_layer": "gelu", "drop_rate": 0.1}}


class Trap:
    def __reduce__(self):
        return (print, ("ran",))


@pytest.fixture
def trapped(tmp_path, monkeypatch):
    """Fails at the first use of the network, of pickle, or of an option by which timm before 1.0.26 reads a file."""

    def sprung(*arguments, **options):
        pytest.fail(f"reached {arguments} {options}")

    monkeypatch.setattr(socket.socket, "connect", sprung)
    monkeypatch.setattr(socket, "getaddrinfo", sprung)
    monkeypatch.setattr(torch, "load", sprung)
    for name in ("load", "loads"):
        monkeypatch.setattr(pickle, name, sprung)
    stub = make_stub()
    build = stub.create_model

    def create_model(name, *, pretrained, num_classes, **options):
        if (
            pretrained
            or ":" in name
            or options.keys() & {"checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay"}
        ):
            sprung(name, **options)
        return build(name, pretrained=pretrained, num_classes=num_classes, **options)

    stub.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", stub)
    (tmp_path / "evil.pth").write_bytes(pickle.dumps(Trap()))
    return tmp_path


def folder_with(spec, folder):
    """A model folder of Holdfast that describes another network than the one it was saved with."""
    Encoder(build_backbone("small")).save_pretrained(folder)
    config = folder / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "backbone": spec}))
    return folder


HOSTILE = [
    ("timm:vit", {"checkpoint_path": "evil.pth"}, "'checkpoint_path'; known: .*in_chans"),
    ("timm:vit", {"pretrained_cfg": {"file": "evil.pth"}}, "'pretrained_cfg'"),
    ("timm:vit", {"pretrained_cfg_overlay": {"hf_hub_id": EVIL}}, "'pretrained_cfg_overlay'"),
    ("timm:vit", {"act_layer": "evil:run"}, "act_layer is 'evil:run'; it must be a number, a word"),
    ("timm:vit", {"depths": [2, ["evil/model"]]}, "depths is 'evil/model'"),
    (f"timm:hf-hub:{EVIL}", {}, "not the name of a network in timm"),
    ("timm:local-dir:elsewhere", {}, "not the name of a network in timm"),
    ("timm:../elsewhere", {}, "not the name of a network in timm"),
    (f"hf:{EVIL}", {}, "is not in transformers"),
    ("hf:timm_wrapper", {"model_args": {"checkpoint_path": "evil.pth"}}, "a network of timm; name it as timm:NAME"),
    ("hf:timm_backbone", {"backbone": f"hf-hub:{EVIL}"}, "backbone is 'hf-hub:evil/model'"),
    ("hf:dinov3_vit", {"attn_implementation": EVIL}, "attn_implementation would fetch code"),
    ("hf:dpt", {"backbone_config": {"model_type": "dinov2", "_attn_implementation": "x"}}, "would fetch code"),
    ("hf:dinov2", {"num_hidden_layers": 10**9}, "num_hidden_layers must be at most 10000, found 1000000000"),
    ("hf:dinov2", {"num_hidden_layers": 10**4, "hidden_size": 8, "num_attention_heads": 1}, "it has more than"),
    ("timm:vit", {"depths": [2, 10**999]}, "depths must be at most 10000"),
    ("hf:dinov3_vit", {"hidden_act": "/evil"}, "hidden_act is '/evil'"),
    ("hf:pixtral", {"rope_parameters": {"rope_type": EVIL}}, "rope_parameters is 'evil/model'"),
    ("hf:detr", {"backbone": EVIL}, "backbone would fetch another network"),
    ("hf:detr", {"backbone_config": {"model_type": "detr", "backbone": EVIL}}, "backbone would fetch another network"),
    ("hf:dpt", {"backbone_config": {"model_type": "timm_wrapper", "model_args": {}}}, "a network of timm"),
    ("hf:dpt", {"backbone_config": {"backbone": "evil"}}, "backbone would fetch"),
    ("hf:dpt", {"backbone_config": {"hidden_size": 8}}, "backbone_config has no model_type"),
    ("hf:dpt", {"backbone_config": {"model_type": EVIL}}, "model type 'evil/model' is not in transformers"),
    ("hf:dpt", {"backbone_config": {"model_type": "dinov2", "auto_map": {"AutoModel": "evil.Model"}}}, "'auto_map'"),
]


@pytest.mark.parametrize(("name", "options", "reason"), HOSTILE)
def test_a_model_folder_reaches_nothing_but_itself(trapped, capsys, name, options, reason):
    spec = {"name": name, "options": {"config": options} if name.startswith("hf:") else options}
    with pytest.raises(HoldfastError, match=reason) as refused:
        Encoder.from_pretrained(folder_with(spec, trapped / "model"))
    assert "config.json: " in str(refused.value)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "timm_wrapper", "model_args": {"checkpoint_path": "evil.pth"}}, "a network of timm"),
        ({"model_type": "detr", "backbone": EVIL}, "backbone would fetch another network"),
        ({"model_type": "dinov2", "attn_implementation": EVIL}, "attn_implementation would fetch code"),
        ({"architecture": f"hf-hub:{EVIL}"}, "not the name of a network in timm"),
        ({"format": "holdfast-encoder", "backbone": {"name": "small", "options": {"name": "evil:run"}}}, "'name'"),
    ],
)
def test_weights_with_a_hostile_config_beside_them(trapped, config, reason):
    """As ``--backbone FOLDER/model.safetensors``."""
    folder = folder_with(None, trapped / "model")
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HoldfastError, match=reason):
        build_backbone(named_backbone(str(folder / "model.safetensors")).name)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "timm_backbone", "backbone": f"hf-hub:{EVIL}"}, "backbone is 'hf-hub:evil/model'"),
        (
            {"model_type": "dpt", "backbone_config": {"model_type": "timm_backbone", "backbone": "local-dir:x"}},
            "local-",
        ),
        ({"model_type": "dinov2", "parts": [{"model_type": "timm_wrapper"}]}, "a network of timm"),
        ({"model_type": "dinov2", "attn_implementation": "flash_attention_2"}, "would fetch code"),
        ({"model_type": "dinov2", "attn_implementation": {"": "flash_attention_3"}}, "would fetch code"),
        ({"model_type": "dinov2", "experts_implementation": "sonicmoe"}, "would fetch code"),
        ({"model_type": "dpt", "backbone_config": {"num_hidden_layers": 1e300}}, "at most 10000, found 1e.300"),
        ({"model_type": "dinov2", "quantization_config": {"quant_method": "gptq"}}, "its weights are quantized"),
    ],
)
def test_a_hostile_folder_of_transformers(trapped, config, reason):
    """As ``--backbone hf:FOLDER``."""
    (trapped / "config.json").write_text(json.dumps(config))
    with pytest.raises(HoldfastError, match=reason):
        build_backbone(f"hf:{trapped}")


@pytest.mark.parametrize("file", ["evil.pth", "../evil.safetensors", None])
def test_an_index_of_weights_names_only_safetensors_beside_it(trapped, file):
    (trapped / "config.json").write_text('{"model_type": "dinov2"}')
    index = {"metadata": {}, "weight_map": {"embeddings.cls_token": file}}
    (trapped / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(HoldfastError, match=r"index\.json: names '.*'; weights must be safetensors files beside it"):
        build_backbone(f"hf:{trapped}")


def test_an_adapter_of_another_model_is_refused(trapped):
    (trapped / "config.json").write_text('{"model_type": "dinov2"}')
    (trapped / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": EVIL}))
    with pytest.raises(HoldfastError, match=r"adapter_config\.json: an adapter names another model"):
        build_backbone(f"hf:{trapped}")


def test_a_network_with_plain_options_is_rebuilt(trapped):
    encoder = Encoder(build_backbone(PLAIN_TIMM["name"], **PLAIN_TIMM["options"])).eval()
    encoder.save_pretrained(trapped / "model")
    again = Encoder.from_pretrained(trapped / "model")
    assert again.backbone.backbone_spec == PLAIN_TIMM
    assert torch.equal(again(torch.ones(1, 3, 32, 32)), encoder(torch.ones(1, 3, 32, 32)))


def test_a_live_nested_configuration_is_rebuilt(trapped):
    """Its keys are not all text: those of ``id2label`` are whole numbers until it is saved as JSON."""
    inner = transformers.Dinov2Config(hidden_size=8, num_hidden_layers=1, num_attention_heads=2).to_dict()
    assert 0 in inner["id2label"]
    options = {"hidden_size": 8, "neck_hidden_sizes": [8] * 4, "num_hidden_layers": 1, "num_attention_heads": 2}
    network = build_backbone("hf:dpt", config={**options, "intermediate_size": 8, "backbone_config": inner})
    assert rebuild_backbone(network.backbone_spec).feature_dim == network.feature_dim
