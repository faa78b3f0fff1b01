"""Tensors of torch in safetensors files, as ``core.storage`` reads and writes arrays of NumPy."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from holdfast.core.real_arrays import check_real
from holdfast.core.storage import reading_tensors, replacing, writing_tensors


def write_torch(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors as one safetensors file."""
    from safetensors.torch import save_file

    plain = {name: tensor.detach().contiguous().cpu().clone() for name, tensor in tensors.items()}
    about = dict(metadata or {})
    with writing_tensors(path), replacing(path) as temporary:
        # safetensors writes an invalid header for an empty dict of metadata without tensors.
        save_file(plain, temporary, metadata=about if plain or about else None)


def read_torch(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read one safetensors file: its tensors and its metadata."""
    from safetensors import safe_open

    with reading_tensors(path), safe_open(path, framework="pt") as file:
        # Cloned: memory mapped by safetensors may be unaligned, and kernels round differently on unaligned data.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        about = dict(file.metadata() or {})
    for name, tensor in tensors.items():
        check_real(tensor, f"{path}: {name}")
    return tensors, about
