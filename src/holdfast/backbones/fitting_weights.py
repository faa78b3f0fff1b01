"""Whether weights are those of a network: no name missing, none too many, every shape the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from holdfast.errors import HoldfastError

MOST_NAMED = 40


def refuse_misfit(source: Path, tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], what: str) -> None:
    """Raise unless ``tensors``, read from ``source``, have the names and shapes of ``expected``, those of ``what``."""
    missing, unexpected = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing or unexpected:
        raise HoldfastError(
            f"{source}: does not fit the {what}; missing: {_listed(missing)}; unexpected: {_listed(unexpected)}"
        )
    wrong = [
        f"{name} {tuple(tensors[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if tensors[name].shape != value.shape
    ]
    if wrong:
        raise HoldfastError(f"{source}: shapes do not fit the {what}: {_listed(wrong)}")


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more if names else "none"
