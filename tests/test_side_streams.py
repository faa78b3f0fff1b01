"""Streams that nobody else has, from a make-believe torch that hands out the same few over and over."""

import itertools

import pytest
import torch

from holdfast import side_streams
from holdfast.errors import HoldfastError
from holdfast.side_streams import side_stream

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def four_of_each_priority(monkeypatch):
    counts = {priority: itertools.count() for priority in side_streams.PRIORITIES}

    class Stream:
        def __init__(self, device, priority):
            self.device = torch.device("cuda", 0)
            self.cuda_stream = 10 * -priority + next(counts[priority]) % 4

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(side_streams, "PER_PRIORITY", 4)


def test_a_stream_that_is_held_is_not_handed_out_again():
    """As when a training that goes on asks once and others, task after task, ask again and again."""
    mine = side_stream(CUDA)
    others = [side_stream(CUDA).cuda_stream for _ in range(20)]  # each given back at once
    assert mine.cuda_stream not in others
    assert set(others) == {11, 12, 13}
    del mine
    assert {side_stream(CUDA).cuda_stream for _ in range(4)} == {10, 11, 12, 13}


def test_where_all_of_a_priority_are_held_there_is_another():
    held = [side_stream(CUDA) for _ in range(12)]
    assert len({stream.cuda_stream for stream in held}) == 12
    with pytest.raises(HoldfastError, match="fewer at a time"):
        side_stream(CUDA)
