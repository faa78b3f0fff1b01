"""What is said of a device's bf16."""

import types

import torch

from holdfast.train.engine.fit_options import emulates_bf16

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_only_a_cpu_without_it_imitates(monkeypatch):
    for supported in (True, False):
        asked = types.SimpleNamespace(_is_mkldnn_bf16_supported=lambda answer=supported: answer)
        monkeypatch.setattr(torch.ops, "mkldnn", asked)
        assert (emulates_bf16(CPU), emulates_bf16(CUDA)) == (not supported, False)
    monkeypatch.setattr(torch.ops, "mkldnn", types.SimpleNamespace())
    assert not emulates_bf16(CPU)
