"""The table of networks, and how one is built from its name or from what was saved of it."""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from holdfast.backbones.lenet import lenet_plus_plus
from holdfast.backbones.own_code import build_own, is_own_code, own_builder, refuse_unbuilt
from holdfast.backbones.regnet import regnety_400mf
from holdfast.backbones.resnet import resnet18, resnet50
from holdfast.backbones.resnet_cifar import resnet32
from holdfast.backbones.senet import senet18
from holdfast.backbones.small import small
from holdfast.backbones.vector_networks import identity, linear, mlp
from holdfast.errors import HoldfastError, unknown_name

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "identity": identity,
    "lenet_plus_plus": lenet_plus_plus,
    "linear": linear,
    "mlp": mlp,
    "regnety_400mf": regnety_400mf,
    "resnet18": resnet18,
    "resnet32": resnet32,
    "resnet50": resnet50,
    "senet18": senet18,
    "small": small,
}

PREFIXES = ("hf:<folder, model type or hub id>", "timm:<model name>", "<package.module>:<function>")


def build_backbone(name: str, **options: Any) -> nn.Module:
    """Build a network with random weights (or, for ``hf:``, those found): N x C x H x W -> N x ``feature_dim``.

    The result carries ``backbone_spec``: JSON with ``name`` and ``options`` from which ``build_backbone`` makes the
    same architecture again, offline. For ``hf:`` it holds the whole configuration, and ``source`` says whence it came.
    ``package.module:function`` is the user's own code, imported and called.
    """
    spec: dict[str, Any] = {"name": name, "options": options}
    if name.startswith("hf:"):
        from holdfast.backbones.hf import hf_backbone

        hub = _call(name, hf_backbone, {"name": name.removeprefix("hf:"), **options})
        return _with_spec(hub, hub.spec())
    if name.startswith("timm:"):
        from holdfast.backbones.timm_adapter import timm_backbone

        return _with_spec(timm_backbone(name.removeprefix("timm:"), options), spec)
    if is_own_code(name):
        return _with_spec(build_own(name, options), spec)
    if name not in BACKBONES:
        raise unknown_name("backbone", name, (*BACKBONES, *PREFIXES))
    return _with_spec(_call(name, BACKBONES[name], options), spec)


def backbone_builder(name: str) -> Callable[..., nn.Module] | None:
    """The function whose keywords are the options of ``name``; None for ``timm:``, where the model decides."""
    if name.startswith("hf:"):
        from holdfast.backbones.hf import hf_backbone

        return hf_backbone
    if name.startswith("timm:"):
        return None
    if is_own_code(name):
        return own_builder(name)
    if name not in BACKBONES:
        raise unknown_name("backbone", name, (*BACKBONES, *PREFIXES))
    return BACKBONES[name]


def rebuild_backbone(spec: Any) -> nn.Module:
    """The architecture of a saved ``backbone_spec``; never goes to the network and runs no code that came with it."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise HoldfastError(f"not a backbone description: {spec!r}")
    name, options = spec["name"], spec.get("options", {})
    if not isinstance(options, Mapping):
        raise HoldfastError(f"backbone {name}: options must be an object, found {options!r}")
    if is_own_code(name):
        refuse_unbuilt(name, options)
    if not name.startswith("hf:"):
        return build_backbone(name, **options)
    from holdfast.backbones.hf import rebuild_hf

    return _with_spec(rebuild_hf(name.removeprefix("hf:"), options, spec.get("source", {})), dict(spec))


def _call(name: str, builder: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    known = inspect.signature(builder).parameters
    for option in arguments:
        if option not in known:
            raise unknown_name(f"option of backbone {name}:", option, [key for key in known if key != "name"])
    return builder(**arguments)


def _with_spec(backbone: nn.Module, spec: dict[str, Any]) -> nn.Module:
    try:
        plain = json.loads(json.dumps(spec, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HoldfastError(f"backbone {spec['name']}: its options must be plain JSON values ({error})") from error
    vars(backbone)["backbone_spec"] = plain  # past nn.Module.__setattr__, which is typed for tensors and modules
    return backbone
