"""LeNet++ (Wen et al. 2016, table 1), for the toy study."""

from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.train.encoders.initialise import check_positive

MIN_SIDE = 16


class LeNetPlusPlus(nn.Module):
    """N x C x H x W -> N x 1152 for sides of at least 16: 128 channels at 3 x 3 positions; or N x ``width``.

    At 28 x 28 this is the paper's network up to its last linear layer, which the encoder's projection replaces unless
    ``width`` is given. For other sizes the last feature map is averaged to 3 x 3.
    """

    def __init__(self, in_channels: int, width: int | None = None) -> None:
        super().__init__()
        positions = 128 * 3 * 3
        self.feature_dim = width or positions
        self.stage1 = _lenet_stage(in_channels, 32)
        self.stage2 = _lenet_stage(32, 64)
        self.stage3 = _lenet_stage(64, 128)
        self.pool = nn.AdaptiveAvgPool2d(3)
        self.linear = nn.Identity() if width is None else nn.Linear(positions, width)

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[-2:]) < MIN_SIDE:
            size = f"{x.shape[-2]} x {x.shape[-1]}"
            raise HoldfastError(f"lenet_plus_plus needs images of at least {MIN_SIDE} pixels a side, got {size}")
        return self.linear(self.pool(self.stage3(self.stage2(self.stage1(x)))).flatten(1))


def _lenet_stage(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 5, padding=2),
        nn.PReLU(outputs),
        nn.Conv2d(outputs, outputs, 5, padding=2),
        nn.PReLU(outputs),
        nn.MaxPool2d(2),
    )


def lenet_plus_plus(*, in_channels: int = 1, width: int | None = None) -> LeNetPlusPlus:
    """LeNet++: 795,296 parameters on grey images, features of size 1152.

    in_channels: 1 for grey, 3 for RGB.
    width: size of the last linear layer, 2 in Wen et al.; None leaves this layer out.
    """
    check_positive("lenet_plus_plus", in_channels=in_channels, **({} if width is None else {"width": width}))
    return LeNetPlusPlus(in_channels, width)
