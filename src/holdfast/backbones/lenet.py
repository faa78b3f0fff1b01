"""LeNet++, the network of the centre-loss paper (Wen et al. 2016, table 1)."""

from torch import Tensor, nn

from holdfast.backbones.initialise import check_positive
from holdfast.errors import HoldfastError

SMALLEST_SIDE = 16


class LeNetPlusPlus(nn.Module):
    """N x C x H x W -> N x 1152 for sides of at least 16: 128 channels at 3 x 3 positions.

    At 28 x 28 the three pools leave 3 x 3 positions and the adaptive pool does nothing, which is the paper's network
    up to its last linear layer (the encoder's projection stands for that). Other sizes are averaged to 3 x 3.
    """

    def __init__(self, in_channels: int) -> None:
        super().__init__()
        self.feature_dim = 128 * 3 * 3
        self.stage1 = _stage(in_channels, 32)
        self.stage2 = _stage(32, 64)
        self.stage3 = _stage(64, 128)
        self.pool = nn.AdaptiveAvgPool2d(3)

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < SMALLEST_SIDE:
            size = f"{x.shape[-2]} x {x.shape[-1]}"
            raise HoldfastError(f"lenet_plus_plus needs images of at least {SMALLEST_SIDE} pixels a side, got {size}")
        return self.pool(self.stage3(self.stage2(self.stage1(x)))).flatten(1)


def _stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 5, padding=2),
        nn.PReLU(outputs),
        nn.Conv2d(outputs, outputs, 5, padding=2),
        nn.PReLU(outputs),
        nn.MaxPool2d(2),
    )


def lenet_plus_plus(*, in_channels: int = 1) -> LeNetPlusPlus:
    """LeNet++: 795,296 parameters on grey images, features of size 1152."""
    check_positive("lenet_plus_plus", in_channels=in_channels)
    return LeNetPlusPlus(in_channels)
