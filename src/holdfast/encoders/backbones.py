"""The table of networks, and how one is built from its name or from what was saved of it.

Networks of the user's own, named as ``package.module:function``.

Naming code is running it, so only someone at this machine may: a local recipe or a call. A model folder may come from
anywhere; what it names is used only if this process has already built exactly that, function and options alike.

Networks of the timm library, by name.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from holdfast.encoders.resnet import resnet18, resnet32, resnet50
from holdfast.encoders.small_networks import identity, lenet_plus_plus, linear, mlp, small
from holdfast.encoders.squeeze_excite import regnety_400mf, senet18
from holdfast.errors import HoldfastError, how_to_install, unknown_name
from holdfast.named_code import import_named, is_named_code

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
        from holdfast.encoders.hf import hf_backbone

        hub = _call(name, hf_backbone, {"name": name.removeprefix("hf:"), **options})
        return _with_spec(hub, hub.spec())
    if name.startswith("timm:"):
        return _with_spec(timm_backbone(name.removeprefix("timm:"), options), spec)
    if is_own_code(name):
        return _with_spec(build_own(name, options), spec)
    if name not in BACKBONES:
        raise unknown_name("backbone", name, (*BACKBONES, *PREFIXES))
    return _with_spec(_call(name, BACKBONES[name], options), spec)


def backbone_builder(name: str) -> Callable[..., nn.Module] | None:
    """The function whose keywords are the options of ``name``; None for ``timm:``, where the model decides."""
    if name.startswith("hf:"):
        from holdfast.encoders.hf import hf_backbone

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
    from holdfast.encoders.hf import rebuild_hf

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


_built: set[str] = set()


def is_own_code(name: str) -> bool:
    """Whether ``name`` is written as ``package.module:function``; ``hf:`` and ``timm:`` are others' namespaces."""
    return is_named_code(name) and not name.startswith(("hf:", "timm:"))


def own_builder(name: str) -> Callable[..., nn.Module]:
    """The function or class that ``name`` means, imported."""
    return import_named("backbone", name)


def build_own(name: str, options: Mapping[str, Any]) -> nn.Module:
    """Call ``name`` with ``options``; it must give a network that says its ``feature_dim``."""
    builder = own_builder(name)
    try:
        inspect.signature(builder).bind(**options)
    except TypeError as error:
        raise HoldfastError(f"backbone {name}: {error}") from None
    network = builder(**options)
    if not isinstance(network, nn.Module):
        raise HoldfastError(f"backbone {name}: gave {type(network).__name__}; it must return a torch.nn.Module")
    if not isinstance(getattr(network, "feature_dim", None), int):
        raise HoldfastError(f"backbone {name}: its network needs an attribute feature_dim, the size of its output")
    _built.add(_key(name, options))
    return network


def refuse_unbuilt(name: str, options: Mapping[str, Any]) -> None:
    """Raise unless this process has built ``name`` with ``options`` on the user's own word."""
    if _key(name, options) not in _built:
        given = "".join(f", {key}={value!r}" for key, value in options.items())
        raise HoldfastError(
            f"its backbone is code, {name}, which is never imported because a model folder says so; "
            f"if you trust it, pass from_pretrained(..., backbone=build_backbone({name!r}{given}))"
        )


def _key(name: str, options: Mapping[str, Any]) -> str:
    return json.dumps([name, dict(options)], sort_keys=True, default=repr)


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
