"""Networks of the user's own, named as ``package.module:function``.

Naming code is running it, so only someone at this machine may: a local recipe or a call. A model folder may come from
anywhere; what it names is used only if this process has already built exactly that, function and options alike.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from holdfast.errors import HoldfastError
from holdfast.named_code import import_named, is_named_code

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
