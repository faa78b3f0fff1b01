"""Initial weights of the convolutional networks, and the check of their sizes."""

from torch import nn

from holdfast.errors import HoldfastError


def kaiming_convolutions(network: nn.Module) -> None:
    """Set every convolution to He-normal weights (fan-out, ReLU). Batch norms already start at scale 1 and shift 0."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")


def check_positive(backbone: str, **sizes: int) -> None:
    """Refuse a size below 1."""
    for option, value in sizes.items():
        if value < 1:
            raise HoldfastError(f"backbone {backbone}: {option} must be at least 1, got {value}")
