"""Streams that nobody else has, from a make-believe torch that hands out the same few over and over."""

import gc
import itertools

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train import cuda_streams
from holdfast.train.cuda_streams import SideStream

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def four_of_each_priority(monkeypatch):
    counts = {priority: itertools.count() for priority in cuda_streams.PRIORITIES}

    class Stream:
        __slots__ = ("cuda_stream", "device")  # which nobody can hold a weak reference to: torch's crash where one is

        def __init__(self, device, priority):
            self.device = torch.device("cuda", 0)
            self.cuda_stream = 10 * -priority + next(counts[priority]) % 4

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(cuda_streams, "PER_PRIORITY", 4)


def test_a_stream_that_is_held_is_not_handed_out_again():
    """As when a training that goes on asks once and others, task after task, ask again and again."""
    mine = SideStream(CUDA)
    others = [SideStream(CUDA).stream.cuda_stream for _ in range(20)]  # each given back at once
    assert mine.stream.cuda_stream not in others
    assert set(others) == {11, 12, 13}
    del mine
    assert {SideStream(CUDA).stream.cuda_stream for _ in range(4)} == {10, 11, 12, 13}


def test_where_all_of_a_priority_are_held_there_is_another():
    held = [SideStream(CUDA) for _ in range(12)]
    assert len({holder.stream.cuda_stream for holder in held}) == 12
    with pytest.raises(HoldfastError, match="fewer at a time"):
        SideStream(CUDA)


def test_what_only_a_cycle_still_holds_is_found_before_giving_up():
    gc.disable()  # else it might be found too early
    try:
        held = [SideStream(CUDA) for _ in range(12)]
        lost = held.pop()
        number = lost.stream.cuda_stream
        lost.itself = lost
        del lost
        assert SideStream(CUDA).stream.cuda_stream == number
    finally:
        gc.enable()
