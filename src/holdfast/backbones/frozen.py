"""Which parts of a network a name means, for those that are to stay as they are."""

from collections.abc import Sequence

from torch import nn

from holdfast.errors import HoldfastError

EVERYTHING = "*"


def frozen_parts(network: nn.Module, names: Sequence[str]) -> list[nn.Module | nn.Parameter]:
    """For each name the module or the parameter of that name; ``*`` is the network itself.

    A name is a whole path: ``layer1`` means all below it, but not ``layer10``. What is not there is refused.
    """
    if not names:
        return []
    modules, parameters = dict(network.named_modules()), dict(network.named_parameters())
    parts: list[nn.Module | nn.Parameter] = []
    for name in names:
        if name == EVERYTHING:
            parts.append(network)
        elif name and (name in modules or name in parameters):
            parts.append(modules[name] if name in modules else parameters[name])
        else:
            top = ", ".join(child for child, _ in network.named_children())
            raise HoldfastError(f"freeze: the backbone has no part {name!r}; its first level: {top}, or * for all")
    return parts
