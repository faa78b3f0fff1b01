"""Networks of the timm library, by name."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from holdfast.errors import HoldfastError, how_to_install

_OURS = ("pretrained", "num_classes", "model_name")


def timm_backbone(name: str, options: Mapping[str, Any]) -> nn.Module:
    """``timm.create_model(name, pretrained=False, num_classes=0, **options)``: random weights, pooled features."""
    for option in _OURS:
        if option in options:
            raise HoldfastError(f"backbone timm:{name}: {option} is set by Holdfast; leave it out")
    try:
        import timm
    except Exception as error:  # timm may be there and still fail to import beside this build of torch
        cause = f"{type(error).__name__}: {error}"
        raise HoldfastError(
            f"backbone timm:{name} needs timm, which does not import ({cause}); try {how_to_install('timm')}"
        ) from error
    try:
        network = timm.create_model(name, pretrained=False, num_classes=0, **options)
        vars(network)["feature_dim"] = int(network.num_features)
    except Exception as error:  # an unknown name or option surfaces as whatever the model's constructor raises
        raise HoldfastError(f"timm cannot build {name!r} with {dict(options)} ({error})") from error
    return network
