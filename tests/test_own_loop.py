"""The loops of docs/own-loop.md, executed as they stand there."""

import re
from pathlib import Path

import pytest
import torch

PAGE = (Path(__file__).parents[1] / "docs" / "own-loop.md").read_text(encoding="utf-8")


def blocks(heading):
    """The Python of one section."""
    sections = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)
    text = sections[sections.index(heading) + 1]
    return re.findall(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names = {"__name__": "own_loop"}
    for block in blocks("A network from random weights"):
        exec(compile(block, "own-loop.md", "exec"), names)
    return names


def holds(names, one, two):
    """Each version knows its classes better than what it started from, and the old one stood still."""
    first, second, loss_of = names[one], names[two], names["loss_of"]
    old = names["old"]
    fresh = names["new_encoder"]().eval()
    with torch.no_grad():
        assert loss_of(first, None, *names["first"].tensors) < loss_of(fresh, None, *names["first"].tensors)
        assert loss_of(second, None, *names["second"].tensors) < loss_of(first, None, *names["second"].tensors)
        x = names["images"]
        torch.testing.assert_close(old(x), first(x))
        assert not torch.equal(second(x), first(x))
    assert not any(parameter.requires_grad for parameter in old.parameters())


@pytest.mark.parametrize(
    ("heading", "needs", "models"),
    [
        ("Plain torch", [], ("version_1", "version_2")),
        pytest.param(
            "PyTorch Lightning", ["pytorch_lightning"], ("lightning_1", "lightning_2"), marks=pytest.mark.slow
        ),
        pytest.param(
            "The Trainer of transformers",
            ["transformers", "accelerate"],
            ("trainer_1", "trainer_2"),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_loop(heading, needs, models, prepared):
    for package in needs:
        pytest.importorskip(package)
    for block in blocks(heading):
        exec(compile(block, "own-loop.md", "exec"), prepared)
    holds(prepared, *models)


def test_fit_with_own_parts(prepared):
    fresh = prepared["new_encoder"]().eval()
    for block in blocks("The loop of Holdfast with parts of your own"):
        exec(compile(block, "own-loop.md", "exec"), prepared)
    x, y = prepared["images"], torch.tensor(prepared["task"].slots)[prepared["labels"]]
    with torch.no_grad():
        assert prepared["first_loss"](prepared["fitted"].eval()(x), y) < prepared["first_loss"](fresh(x), y)


def test_a_pretrained_network_stays_close_to_the_old_model():
    names = {}
    (code,) = blocks("A pre-trained network, fine-tuned")
    exec(compile(code, "own-loop.md", "exec"), names)
    assert names["features"].shape == (4, 64)
    assert not torch.equal(names["model"].backbone[1].weight, names["old"].backbone[1].weight)


def test_every_section_has_its_test():
    assert re.findall(r"^## (.+)$", PAGE, flags=re.MULTILINE) == [
        "A pre-trained network, fine-tuned",
        "A network from random weights",
        "Plain torch",
        "PyTorch Lightning",
        "The Trainer of transformers",
        "The loop of Holdfast with parts of your own",
    ]
