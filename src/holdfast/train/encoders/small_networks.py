"""Small networks: the demo network, a fast ResNet, and networks for vectors."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.arm_convolution import Convolution
from holdfast.train.encoders.initialise import check_positive, kaiming_convolutions


class SmallNet(nn.Module):
    """N x C x H x W -> N x (4 * width): four convolutions, each with batch norm and ReLU, then average pooling.

    The strides are 3, 2, 2 and 2, so that the wide layers have few positions: 0.6 million multiply-adds per image at
    28 x 28 and width 32. Trains on a CPU.
    """

    def __init__(self, in_channels: int, width: int) -> None:
        super().__init__()
        self.feature_dim = 4 * width
        narrow = max(width // 2, 1)
        self.stages = nn.Sequential(
            _small_stage(in_channels, narrow, kernel=5, stride=3),
            _small_stage(narrow, width, kernel=3, stride=2),
            _small_stage(width, 2 * width, kernel=3, stride=2),
            _small_stage(2 * width, 4 * width, kernel=3, stride=2),
        )
        kaiming_convolutions(self)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs at these sizes

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(x).mean(dim=(2, 3))


def _small_stage(inputs: int, outputs: int, *, kernel: int, stride: int) -> nn.Sequential:
    convolution = Convolution(inputs, outputs, kernel, stride)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def small(*, in_channels: int = 1, width: int = 32) -> SmallNet:
    """The demo network: features of size ``4 * width``; 97,648 parameters with the defaults."""
    check_positive("small", in_channels=in_channels, width=width)
    return SmallNet(in_channels, width)


class PooledStage(nn.Module):
    """A convolution to ``outputs`` channels, max-pooling to half the side, and one residual convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = Convolution(inputs, outputs, 3)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = Convolution(outputs, outputs, 3)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        h = F.gelu(self.bn1(F.max_pool2d(self.conv1(x), 2)))
        return h + F.gelu(self.bn2(self.conv2(h)))


class SmallResNet(nn.Module):
    """N x C x H x W -> N x (4 * width) for sides of at least 8: seven convolutions, the mean over positions.

    The side is halved three times, and once more by a stem of stride 2. The wide layers have few positions, so that
    2,000 images of 32 x 32 can be trained on in minutes on a CPU.
    """

    def __init__(self, in_channels: int, width: int, stem_stride: int) -> None:
        super().__init__()
        self.feature_dim = 4 * width
        self.stem = Convolution(in_channels, width, 3, stem_stride)
        self.stem_bn = nn.BatchNorm2d(width)
        self.stages = nn.Sequential(
            PooledStage(width, width), PooledStage(width, 2 * width), PooledStage(2 * width, 4 * width)
        )
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # faster on CPUs

    def forward(self, x: Tensor) -> Tensor:
        return self.stages(F.gelu(self.stem_bn(self.stem(x)))).mean(dim=(2, 3))


def small_resnet(*, in_channels: int = 3, width: int = 32, stem_stride: int = 1) -> SmallResNet:
    """The default network for one's own images: 296,736 parameters with the defaults, features of size ``4 * width``.

    in_channels: 3 for RGB, 1 for grey.
    width: channels of the first stage.
    stem_stride: 2 for images of about 64 pixels; the cost is then that of half the side.
    """
    check_positive("small_resnet", in_channels=in_channels, width=width, stem_stride=stem_stride)
    return SmallResNet(in_channels, width, stem_stride)


class VectorNetwork(nn.Module):
    """N x ``in_channels`` -> N x ``feature_dim`` through ``layers``."""

    def __init__(self, layers: nn.Module, feature_dim: int) -> None:
        super().__init__()
        self.layers = layers
        self.feature_dim = feature_dim

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


def identity(*, in_channels: int) -> VectorNetwork:
    """The vectors unchanged: for a model of which only stored vectors exist."""
    check_positive("identity", in_channels=in_channels)
    return VectorNetwork(nn.Identity(), in_channels)


def linear(*, in_channels: int, width: int = 128) -> VectorNetwork:
    """One linear layer with bias: features of size ``width``."""
    check_positive("linear", in_channels=in_channels, width=width)
    return VectorNetwork(nn.Linear(in_channels, width), width)


class ResidualLinear(nn.Module):
    """x + W x without bias; W begins as zero, so an untrained layer returns its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return x + F.linear(x, self.weight)


def residual(*, in_channels: int) -> VectorNetwork:
    """The vectors plus a linear map of them that begins as zero: features of the same size.

    in_channels: size of the input vectors.

    Training begins with the vectors themselves, so a low learning rate keeps most of what they separate.
    """
    check_positive("residual", in_channels=in_channels)
    return VectorNetwork(ResidualLinear(in_channels), in_channels)


_MOST_LAYERS = 1000


def mlp(
    *, in_channels: int, hidden: int = 256, width: int = 128, layers: int = 2, dropout: float = 0.0
) -> VectorNetwork:
    """A multi-layer perceptron: linear layers with batch norm and ReLU between them.

    in_channels: size of the input vectors.
    hidden: size of the hidden layers.
    width: size of the features.
    layers: number of linear layers.
    dropout: probability of dropout after each ReLU.
    """
    check_positive("mlp", in_channels=in_channels, hidden=hidden, width=width, layers=layers)
    if layers > _MOST_LAYERS:
        raise HoldfastError(f"backbone mlp: layers must be at most {_MOST_LAYERS}, got {layers}")
    if not 0 <= dropout < 1:
        raise HoldfastError(f"backbone mlp: dropout must be in [0, 1), got {dropout}")
    parts: list[nn.Module] = []
    size = in_channels
    for _ in range(layers - 1):
        parts += [nn.Linear(size, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU()]
        parts += [nn.Dropout(dropout)] if dropout else []
        size = hidden
    return VectorNetwork(nn.Sequential(*parts, nn.Linear(size, width)), width)
