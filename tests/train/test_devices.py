"""Which device a name means, and which names are refused."""

import pytest
import torch

from holdfast.core.errors import HoldfastError
from holdfast.train.devices import resolve_device


def test_auto_is_the_gpu_if_there_is_one(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device() == resolve_device("auto") == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device() == resolve_device("auto") == torch.device("cpu")


def test_a_device_by_name_or_as_torch_has_it(monkeypatch):
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert resolve_device("cuda") == torch.device("cuda")
    assert resolve_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:x", ""])
def test_unknown_names(name):
    with pytest.raises(HoldfastError, match=f"unknown device '{name}'; use auto, cpu, cuda or cuda:N"):
        resolve_device(name)


def test_gpus_that_are_not_there(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(HoldfastError, match="device 'cuda:0' cannot be used: torch sees no GPU; use cpu"):
        resolve_device(torch.device("cuda:0"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(HoldfastError, match="'cuda:2' does not exist: the last GPU that torch sees is cuda:1"):
        resolve_device("cuda:2")
