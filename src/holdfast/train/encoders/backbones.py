"""The table of networks, and functions that build one from its name or from a saved description.

A network may also come from transformers (``hf:``), from timm (``timm:``) or from the user's own code
(``package.module:function``). Importing code executes it, so a model folder, which may come from anywhere, never causes
an import by itself: own code is rebuilt only if the user has named it as trusted, or if this process has already built
the same function with the same options.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from holdfast.core.errors import HoldfastError, first_line, how_to_install, unknown_name
from holdfast.train.encoders.resnet import resnet18, resnet32, resnet50
from holdfast.train.encoders.small_networks import identity, linear, mlp, residual, small, small_resnet
from holdfast.train.encoders.untrusted_networks import check_timm
from holdfast.train.named_code import TRUSTED_CODE, import_named, is_named_code, trusted_code

BACKBONES: dict[str, Callable[..., nn.Module]] = {
    "identity": identity,
    "linear": linear,
    "mlp": mlp,
    "residual": residual,
    "resnet18": resnet18,
    "resnet32": resnet32,
    "resnet50": resnet50,
    "small": small,
    "small_resnet": small_resnet,
}

PREFIXES = ("hf:<folder, model type or hub id>", "timm:<model name>", "<package.module>:<function>")


def build_backbone(name: str, **options: Any) -> nn.Module:
    """Build a network N x C x H x W -> N x ``feature_dim``.

    Weights are random. ``hf:`` loads trained ones if it finds them, and ``timm:`` with ``pretrained=True``.

    name: a key of ``BACKBONES``, ``hf:...``, ``timm:...``, or ``package.module:function``, which is imported.
    options: arguments of the network's builder.

    The result has an attribute ``backbone_spec``: JSON with ``name`` and ``options``, from which the architecture can
    be built again offline. For ``hf:`` it contains the whole configuration and the ``source`` of the weights.

    >>> from holdfast import build_backbone
    >>> network = build_backbone("small", in_channels=3, width=8)
    >>> network.feature_dim, network.backbone_spec["name"]
    (32, 'small')
    """
    trained = name.startswith("timm:") and bool(options.pop("pretrained", False))
    spec: dict[str, Any] = {"name": name, "options": options}
    if name.startswith("hf:"):
        from holdfast.train.encoders.hf import hf_backbone

        hub = _call(name, hf_backbone, {"name": name.removeprefix("hf:"), **options})
        return _with_spec(hub, hub.spec())
    if name.startswith("timm:"):
        source = {"source": {"name": name, "pretrained": True}} if trained else {}
        return _with_spec(_timm_backbone(name.removeprefix("timm:"), options, trained), {**spec, **source})
    if is_own_code(name):
        return _with_spec(_build_own_code(name, options), spec)
    if name not in BACKBONES:
        raise unknown_name("backbone", name, (*BACKBONES, *PREFIXES))
    return _with_spec(_call(name, BACKBONES[name], options), spec)


def backbone_builder(name: str) -> Callable[..., nn.Module] | None:
    """The function with the options of ``name`` as keyword arguments; None for ``timm:``, where they are not known."""
    if name.startswith("hf:"):
        from holdfast.train.encoders.hf import hf_backbone

        return hf_backbone
    if name.startswith("timm:"):
        return None
    if is_own_code(name):
        return import_named("backbone", name)
    if name not in BACKBONES:
        raise unknown_name("backbone", name, (*BACKBONES, *PREFIXES))
    return BACKBONES[name]


def rebuild_backbone(spec: Any) -> nn.Module:
    """Build the architecture of a saved ``backbone_spec``, offline. Own code that it names is imported if trusted."""
    name, options = named_options(spec)
    if is_own_code(name):
        _check_trusted(name, options)
    if name.startswith("timm:"):
        return _with_spec(build_backbone(name, **{**options, "pretrained": False}), dict(spec))
    if not name.startswith("hf:"):
        return build_backbone(name, **options)
    from holdfast.train.encoders.hf import rebuild_hf

    return _with_spec(rebuild_hf(name.removeprefix("hf:"), options, spec.get("source", {})), dict(spec))


def named_options(spec: Any) -> tuple[str, Mapping[str, Any]]:
    """Name and options in a saved ``backbone_spec``; of a network in ``BACKBONES`` only options that it has."""
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise HoldfastError(f"not a backbone description: {spec!r}")
    name, options = spec["name"], spec.get("options", {})
    if not isinstance(options, Mapping):
        raise HoldfastError(f"backbone {name}: options must be an object, found {options!r}")
    if name in BACKBONES:
        _check_options(name, BACKBONES[name], options)
    return name, options


def _call(name: str, builder: Callable[..., Any], arguments: Mapping[str, Any]) -> Any:
    _check_options(name, builder, arguments)
    return builder(**arguments)


def _check_options(name: str, builder: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    known = inspect.signature(builder).parameters
    for option in arguments:
        if option not in known:
            raise unknown_name(f"option of backbone {name}:", option, [key for key in known if key != "name"])


def _with_spec(backbone: nn.Module, spec: dict[str, Any]) -> nn.Module:
    try:
        plain = json.loads(json.dumps(spec, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise HoldfastError(f"backbone {spec['name']}: its options must be plain JSON values ({error})") from error
    vars(backbone)["backbone_spec"] = plain  # not by setattr: nn.Module types it for tensors and modules
    return backbone


_built: set[str] = set()
"""Names and options of own code that was built in this process, as JSON."""


def is_own_code(name: str) -> bool:
    """Whether ``name`` is written as ``package.module:function``; ``hf:`` and ``timm:`` are not."""
    return is_named_code(name) and not name.startswith(("hf:", "timm:"))


def _build_own_code(name: str, options: Mapping[str, Any]) -> nn.Module:
    """Import and call ``name`` with ``options``. It must return a network with an attribute ``feature_dim``."""
    builder = import_named("backbone", name)
    try:
        inspect.signature(builder).bind(**options)
    except TypeError as error:
        raise HoldfastError(f"backbone {name}: {error}") from None
    network = builder(**options)
    if not isinstance(network, nn.Module):
        raise HoldfastError(f"backbone {name}: returned {type(network).__name__}; it must return a torch.nn.Module")
    if not isinstance(getattr(network, "feature_dim", None), int):
        raise HoldfastError(f"backbone {name}: its network needs an attribute feature_dim, the size of its output")
    _built.add(_key(name, options))
    return network


def _check_trusted(name: str, options: Mapping[str, Any]) -> None:
    """Refuse own code that is not named as trusted and was not built in this process with the same options."""
    if name in trusted_code() or _key(name, options) in _built:
        return
    given = "".join(f", {key}={value!r}" for key, value in options.items())
    raise HoldfastError(
        f"its backbone is code, {name}, and code named in a model folder is only imported if you trust it: run "
        f"holdfast --code {name} ..., set {TRUSTED_CODE}={name}, or in Python pass from_pretrained(..., "
        f"backbone=build_backbone({name!r}{given}))"
    )


def _key(name: str, options: Mapping[str, Any]) -> str:
    return json.dumps([name, dict(options)], sort_keys=True, default=repr)


_TIMM_RESERVED = ("num_classes", "model_name")


def _timm_backbone(name: str, options: Mapping[str, Any], trained: bool) -> nn.Module:
    """``timm.create_model(name, pretrained=trained, num_classes=0, **options)``: pooled features."""
    for option in _TIMM_RESERVED:
        if option in options:
            raise HoldfastError(f"backbone timm:{name}: {option} is set by Holdfast; leave it out")
    check_timm(name, options)
    timm = import_timm(name)
    try:
        network = timm.create_model(name, pretrained=trained, num_classes=0, **options)
        vars(network)["feature_dim"] = int(network.num_features)
    except Exception as error:  # constructors raise anything for an unknown name, an option or missing weights
        what = f"build {name!r} with {dict(options)}" + (" and its trained weights" if trained else "")
        advice = "; without a network give a file of weights as well (backbone.weights)" if trained else ""
        raise HoldfastError(f"timm cannot {what} ({first_line(error)}){advice}") from error
    return network


def import_timm(name: str) -> Any:
    """The package timm, for the backbone ``timm:name``."""
    try:
        import timm
    except Exception as error:  # an installed timm may fail to import with this build of torch
        cause = f"{type(error).__name__}: {error}"
        raise HoldfastError(
            f"backbone timm:{name} needs timm, which does not import ({cause}); try {how_to_install('timm')}"
        ) from error
    return timm
