"""A stand-in for timm, which does not import beside every build of torch: two tiny networks with its interface."""

import types

import torch
from torch import nn


class TinyNet(nn.Module):
    def __init__(self, num_features):
        super().__init__()
        self.num_features = num_features
        self.stem = nn.Conv2d(3, num_features, 4, stride=4)
        self.norm = nn.BatchNorm2d(num_features)

    def forward(self, x):
        return torch.relu(self.norm(self.stem(x))).mean((2, 3))


def make_stub():
    """The module; ``calls`` lists what was built, and trained weights are those of seed 7."""
    stub = types.ModuleType("timm")
    stub.calls = []

    def create_model(name, *, pretrained, num_classes, **options):
        if name.startswith("missing"):
            raise RuntimeError(f"No pretrained weights exist for {name}.\nUse `pretrained=False`")
        assert num_classes == 0
        stub.calls.append((name, pretrained, options))
        with torch.random.fork_rng(devices=[]):
            if pretrained:
                torch.manual_seed(7)
            return TinyNet(10 if name.startswith("convnext") else 6)

    def get_pretrained_cfg(name):
        if name.startswith("unknown"):
            raise RuntimeError(f"Unknown architecture ({name})")
        return types.SimpleNamespace(input_size=(3, 24, 24), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))

    stub.create_model, stub.get_pretrained_cfg = create_model, get_pretrained_cfg
    return stub
