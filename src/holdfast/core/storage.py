"""Atomic writes and safe reads: JSON, npy and safetensors, never pickle.

Every writer fills a temporary file in the same folder, syncs it to disk and renames it over the target, so that a
reader sees either the old file or the new one. A killed process leaves at most a temporary file, named ``.tmp-...``,
that nothing reads.
"""

import contextlib
import ctypes
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core import untrusted_files
from holdfast.core.errors import HoldfastError
from holdfast.core.real_arrays import check_real

TEMPORARY = ".tmp-"
read_json, read_array = untrusted_files.read_json, untrusted_files.read_npy


def check_file_writable(path: Path) -> None:
    """Refuse a file that could not be written, before anything is computed for it."""
    if path.is_dir():
        raise HoldfastError(f"{path}: is a folder; name a file")
    above = next(one for one in path.absolute().parents if one.exists())
    if not above.is_dir():
        raise HoldfastError(f"{path}: {above} is not a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise HoldfastError(f"{path}: {above} may not be written to; choose another folder")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on a clean exit it is renamed to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=TEMPORARY, suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o644)  # mkstemp gives 0600, but others may need to read the file
        if path.parent.name.startswith(TEMPORARY):
            temporary.replace(path)  # ``replacing_folder`` syncs the whole folder
        else:
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_folder(path: Path, *, prefix: str = TEMPORARY) -> Iterator[Path]:
    """Yield a temporary folder next to ``path``; on a clean exit it takes the place of ``path``.

    prefix: how the temporary folder's name begins; it begins with ``TEMPORARY``.

    On Linux an existing folder is exchanged with the new one in one step. Elsewhere it is first moved aside, because a
    rename cannot replace a folder that is not empty; a kill between the two renames leaves no folder at ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=prefix, dir=path.parent))
    try:
        yield temporary
        temporary.chmod(0o755)
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        _sync(temporary)
        if path.is_dir() and not path.is_symlink() and _exchanged(temporary, path):
            pass  # the old folder is the temporary one now, and removed below
        elif path.exists():
            aside = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=path.parent))
            path.replace(aside / "old")
            temporary.replace(path)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            temporary.replace(path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_replaceable(path: Path, names: Collection[str]) -> None:
    """Refuse to replace what exists at ``path``, unless it is a folder with no other files than ``names``."""
    if not path.exists():
        return
    others = sorted(one.name for one in path.iterdir() if one.name not in names) if path.is_dir() else [path.name]
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise HoldfastError(f"{path}: exists and holds {others[0]}{more}, which would be lost; choose another folder")


_HERE, _EXCHANGE = -100, 2
"""AT_FDCWD and RENAME_EXCHANGE of Linux."""


def _exchanged(first: Path, second: Path) -> bool:
    """Exchange two folders in one step; False if the system or the file system cannot."""
    try:
        renameat2 = ctypes.CDLL(None).renameat2
    except (AttributeError, OSError, TypeError):  # another system, or an old C library
        return False
    renameat2.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    found: int = renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE)
    return found == 0


def remove_temporaries(folder: Path) -> None:
    """Remove temporary files and folders that killed writers left in ``folder``."""
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as strict JSON: NaN and infinities become null. A list of numbers takes one line."""
    text = json.dumps(without_nan(value), indent=2, allow_nan=False, ensure_ascii=False)
    write_text(path, _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


_NUMBERS = re.compile(r'\[\n([^"\[\]{}]+)\]')
"""A list of numbers, true, false and null in indented JSON. No string contains a line break."""


def write_array(path: Path, array: np.ndarray) -> None:
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_tensors(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write arrays as one safetensors file. ``train.tensor_files`` writes tensors of torch."""
    from safetensors.numpy import save_file

    plain = {name: np.asarray(array, order="C") for name, array in tensors.items()}
    about = dict(metadata or {})
    with writing_tensors(path), replacing(path) as temporary:
        # safetensors writes an invalid header for an empty dict of metadata without tensors.
        save_file(plain, temporary, metadata=about if plain or about else None)


_WITHOUT_NUMPY = re.compile("BF16|F4|F6_|F8_")
"""Types of safetensors that NumPy does not have."""


def read_tensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read one safetensors file: its arrays and its metadata. ``train.tensor_files`` reads tensors of torch."""
    from safetensors import safe_open

    with reading_tensors(path), safe_open(path, framework="np") as file:
        names = file.keys()
        kinds = {name: str(file.get_slice(name).get_dtype()) for name in names}
        for name, kind in kinds.items():
            if _WITHOUT_NUMPY.match(kind):  # read only while another package, such as onnx, has taught NumPy the type
                raise HoldfastError(f"{path}: {name} holds numbers of type {kind}, which NumPy lacks; write it as F32")
        arrays = {name: np.array(file.get_tensor(name)) for name in names}
        about = dict(file.metadata() or {})
    for name, array in arrays.items():
        check_real(array, f"{path}: {name}")
    return arrays, about


@contextlib.contextmanager
def writing_tensors(path: Path) -> Iterator[None]:
    """Errors of safetensors in the block become one line."""
    from safetensors import SafetensorError

    try:
        yield
    except SafetensorError as error:  # safetensors reports a full disk as its own error
        raise HoldfastError(
            f"{path}: cannot be written ({error}); free disk space, or choose another folder"
        ) from error


@contextlib.contextmanager
def reading_tensors(path: Path) -> Iterator[None]:
    """As ``writing_tensors``, also for what a damaged file gives; pipes and devices are refused."""
    from safetensors import SafetensorError

    untrusted_files.check_regular(path)
    try:
        yield
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise HoldfastError(f"{path}: not readable as safetensors, perhaps truncated ({error})") from error


def without_nan(value: Any) -> Any:
    """The same structure, records too, in plain Python types, with NaN and infinities replaced by None."""
    if type(value) in _PLAIN:
        return value
    if is_dataclass(value):
        return {field.name: without_nan(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): without_nan(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return without_nan(value.tolist())
    if isinstance(value, list | tuple):
        return [without_nan(item) for item in value]
    if isinstance(value, np.generic):
        return without_nan(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value


_PLAIN = (str, int, bool, type(None))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
