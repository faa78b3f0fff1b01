"""The card beside a saved model says what is recorded, and nothing else."""

import json

import torch

from holdfast.train.encoders import Encoder, Preprocess, build_backbone
from holdfast.train.encoders.model_card import card

EVIDENCE = {
    "name": "1", "weights_sha256": "ab" * 32, "which": "all classes", "verdict": "better", "score": "top1",
    "protocol": "instance", "confidence": 0.95, "queries": 50, "gallery": 60, "classes": 7,
    "gain": {"value": 0.031, "low": 0.0125, "high": 0.05},
}  # fmt: skip


def test_a_plain_model(tmp_path):
    preprocess = Preprocess(size=28, mean=(0.2,), std=(0.3,), colour="grey")
    Encoder(build_backbone("small", width=4), 9, preprocess=preprocess).save_pretrained(tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    weights = json.loads((tmp_path / "model" / "config.json").read_text())["weights_sha256"]
    assert "| network | small, 16 features projected to 9 |" in text
    assert "| input | grey images, 28 x 28 |" in text
    assert "| trained on | not recorded |" in text
    assert f"`{weights}`" in text
    assert "Not checked against another version." in text
    assert "slots" not in text


def test_everything_that_can_be_recorded():
    info = {
        "task": 2, "method": "simplex_hoc", "parent": {"name": "1", "weights_sha256": "ab" * 32},
        "slots": {"num_slots": 10, "owners": {"a": 0, "b|c": 1}},
        "data": {"images": 1200, "classes": 1, "fingerprint": "f00"}, "evidence": [EVIDENCE],
    }  # fmt: skip
    text = card({"backbone": {"name": "resnet18"}, "dim": 9, "feature_dim": 9, "preprocess": None, "info": info}, "cd")
    for line in (
        "| network | resnet18, 9 features |",
        "| trained from | `abababababababab` (1) |",
        "| trained on | 1,200 images of 1 class, fingerprint `f00` |",
        "| slots | 10: 2 owned, 8 free |",
        "Checked against `abababababababab` (1).",
        "| all classes | **–** | – | +3.10 (+1.25 to +5.00) | compatible | 7 classes, 50 queries, 60 stored |",
    ):
        assert line in text.splitlines()


def test_the_answer_that_decides_and_the_share_kept_come_first():
    kept = {"value": 0.985, "low": 0.97, "high": 0.999}
    entry = {**EVIDENCE, "loss": {"question": "At most 1 point lost", "answer": "yes"}, "kept": kept}
    info = {"evidence": [{**entry, "which": "known classes"}, {**entry, "which": "new classes"}]}
    description = {"backbone": {"name": "small"}, "dim": 9, "feature_dim": 9, "preprocess": None}
    text = card({**description, "info": info}, "cd")
    assert "| queries of | at most 1 point lost | re-embedding kept, % | gain, points (interval) |" in text
    assert "| known classes | **yes** | 98.5 (97.0 to 99.9) | +3.10 (+1.25 to +5.00) | compatible |" in text
    assert "Known classes decide: an old index holds no items of new classes." in text
    one_query = {**entry, "which": "known classes", "kept": {"value": 0.5, "low": None, "high": None}}
    assert "| **yes** | 50.0 |" in card({**description, "info": {"evidence": [one_query]}}, "cd")


def test_items_of_older_versions():
    measured = {
        "name": "2", "weights_sha256": "cd" * 32, "version": 2, "kind": "rotation", "pairs": 1000, "held_out": 300,
        "exposure": {"1": 0.96, "10": None}, "exposure_without": {"1": 0.0, "10": 0.031},
    }  # fmt: skip
    entries = [
        measured,
        {**measured, "name": "other|size", "exposure_without": None},
        {**measured, "name": "few", "pairs": 60, "held_out": 18, "exposure": {}, "exposure_without": {}},
        {"name": "1", "weights_sha256": "ef" * 32, "version": 1, "not_measured": "no folder"},
    ]
    description = {"backbone": {"name": "small"}, "dim": 9, "feature_dim": 9, "preprocess": None}
    lines = card({**description, "info": {"old_items": entries}}, "cd").splitlines()
    weights = "`cdcdcdcdcdcdcdcd`"
    for line in (
        f"| 2 | {weights} | rotation | 0.96, – | 0.00, 0.03 | 1,000 images, 300 held out |",
        f"| other\\|size | {weights} | rotation | 0.96, – | cannot be compared | 1,000 images, 300 held out |",
        f"| few | {weights} | rotation | – | – | 60 images, 18 held out: too few for exposure |",
        "| 1 | `efefefefefefefef` | – | – | – | not measured: no folder |",
    ):
        assert line in lines
    assert "Items of older versions" not in card({**description, "info": {"old_items": "mine"}}, "cd")


def test_info_of_the_users_own_does_no_harm(tmp_path):
    odd = {"slots": 5, "data": "mine", "parent": "me", "evidence": "none", "task": {"a": 1}, "pretrained": True}
    Encoder(torch.nn.Flatten(), feature_dim=4, info=odd).save_pretrained(tmp_path / "model")
    assert "network | Flatten" in (tmp_path / "model" / "README.md").read_text()
    assert Encoder.from_pretrained(tmp_path / "model", backbone=torch.nn.Flatten()).info == odd


def test_models_of_a_run_name_its_set(tiny_run):
    text = (tiny_run / "models" / "02" / "README.md").read_text()
    assert "| trained on | tasks 1 to 2 of 48 images of 6 classes, fingerprint" in text
