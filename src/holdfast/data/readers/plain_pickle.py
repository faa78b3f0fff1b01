"""A restricted unpickler for untrusted pickles of plain data and numeric arrays.

Allowing numpy's own classes would not be safe: ``numpy.ndarray`` called with an object dtype and a buffer reads raw
bytes as pointers. So the few names that such pickles contain are replaced by the functions in this file, and every
other name is refused.
"""

import pickle
from typing import Any, BinaryIO

import numpy as np

from holdfast.errors import HoldfastError

_NDARRAY = object()  # only passed to _empty_array


def load_plain(stream: BinaryIO, source: str) -> Any:
    """The dictionaries, lists, strings and arrays in a pickle. Strings of Python 2 become bytes.

    source: name of the pickle in errors.
    """
    try:
        return _PlainUnpickler(stream, encoding="bytes").load()
    except HoldfastError as error:
        raise HoldfastError(f"{source}: {error}") from None
    except Exception as error:  # malformed pickles fail with nearly any exception
        raise HoldfastError(f"{source}: not readable as a pickle ({type(error).__name__}: {error})") from error


def with_text_keys(value: Any, source: str) -> dict[str, Any]:
    """A dictionary from a pickle, with its keys as text. Any other value is refused."""
    if not isinstance(value, dict):
        raise HoldfastError(f"{source}: expected a dictionary, found {type(value).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): item for key, item in value.items()}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise HoldfastError(
                f"refused: the pickle contains {module}.{name}, which plain data does not need"
            ) from None


def _empty_array(subtype: object, shape: object, kind: object) -> np.ndarray:
    """Replaces numpy's ``_reconstruct``: an array that the pickle then fills through ``__setstate__``."""
    return np.empty(0, np.uint8)


def _numeric_dtype(code: str | bytes, *_: object) -> np.dtype:
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text.lstrip("|<>=") not in {"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}:
        raise HoldfastError(f"refused: an array of type {text!r}, where only numbers are expected")
    return np.dtype(text, copy=True)  # a copy: the pickle then sets its byte order


def _latin1(text: str, encoding: str) -> bytes:
    """Replaces ``_codecs.encode``, by which Python 3 writes bytes in old protocols."""
    if encoding != "latin1":
        raise HoldfastError(f"refused: text in the encoding {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _numeric_dtype,
    ("_codecs", "encode"): _latin1,
}
