"""Small steps on vectors run on one CPU thread."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
import torch

from holdfast.train.encoders import Encoder, Preprocess, VectorInput, build_backbone
from holdfast.train.engine.fit import SMALL_STEP, threads_of_step


@dataclass
class Step:
    """What the rule reads of a training step."""

    encoder: Encoder
    batch: int
    device: str = "cpu"
    preprocess: object = field(init=False)

    def __post_init__(self):
        self.preprocess = self.encoder.preprocess
        self.batches = torch.zeros(1, self.batch)
        self.images = SimpleNamespace(device=torch.device(self.device))


def of_vectors(batch, device="cpu"):
    return Step(Encoder(build_backbone("linear", in_channels=8, width=8), preprocess=VectorInput(8)), batch, device)


def of_images():
    preprocess = Preprocess(size=16, mean=(0.5,), std=(0.5,), colour="grey")
    return Step(Encoder(build_backbone("small", width=4), preprocess=preprocess), 2)


@pytest.mark.parametrize(
    ("step", "threads"),
    [
        (of_vectors(2), 1),
        (of_vectors(SMALL_STEP // 72), 1),  # 8 x 8 weights and 8 of the bias
        (of_vectors(SMALL_STEP // 72 + 1), 2),
        (of_vectors(2, "meta"), 2),
        (of_images(), 2),
    ],
)
def test_threads_inside_and_after(two_threads, step, threads):
    with threads_of_step(step):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 2


def test_threads_after_an_error(two_threads):
    with pytest.raises(KeyError), threads_of_step(of_vectors(2)):
        raise KeyError
    assert torch.get_num_threads() == 2
