"""Networks that take vectors: embeddings of a foundation model in, features out."""

from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive
from holdfast.errors import HoldfastError


class VectorNetwork(nn.Module):
    """N x ``in_channels`` -> N x ``feature_dim`` through ``layers``."""

    def __init__(self, layers: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.feature_dim = feature_dim

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def identity(*, in_channels: int) -> VectorNetwork:
    """Vectors as they are: for a model of which only the vectors are left."""
    check_positive("identity", in_channels=in_channels)
    return VectorNetwork(nn.Identity(), in_channels)


def linear(*, in_channels: int, width: int = 128) -> VectorNetwork:
    """One linear map of vectors, with a bias: features of size ``width``."""
    check_positive("linear", in_channels=in_channels, width=width)
    return VectorNetwork(nn.Linear(in_channels, width), width)


def mlp(
    *, in_channels: int, hidden: int = 256, width: int = 128, layers: int = 2, dropout: float = 0.0
) -> VectorNetwork:
    """A multi-layer perceptron on vectors: ``layers`` linear maps with batch norm and ReLU between them.

    ``hidden`` is the size in between, ``width`` that of the features; ``dropout`` comes behind each ReLU.
    """
    check_positive("mlp", in_channels=in_channels, hidden=hidden, width=width, layers=layers)
    if not 0 <= dropout < 1:
        raise HoldfastError(f"backbone mlp: dropout must lie in [0, 1), got {dropout}")
    parts: list[nn.Module] = []
    size = in_channels
    for _ in range(layers - 1):
        parts += [nn.Linear(size, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU()]
        parts += [nn.Dropout(dropout)] if dropout else []
        size = hidden
    return VectorNetwork(nn.Sequential(*parts, nn.Linear(size, width)), width)
