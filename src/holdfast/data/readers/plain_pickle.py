"""Pickles of plain data and numeric arrays, read without trusting them.

Allowing numpy's own classes would not be safe: ``numpy.ndarray`` called with an object dtype and a buffer takes raw
bytes for pointers. So a pickle never gets hold of numpy or of anything else that exists outside this file: the few
names that such pickles contain stand for the functions here, and every other name is refused.
"""

import pickle
from typing import Any, BinaryIO

import numpy as np

from holdfast.errors import HoldfastError

_NDARRAY = object()  # only ever passed back to _empty_array, and of no use for anything else


def load_plain(stream: BinaryIO, source: str) -> Any:
    """The dictionaries, lists, strings and arrays in a pickle; ``source`` names it in errors.

    Strings of Python 2 come as bytes.
    """
    try:
        return _PlainUnpickler(stream, encoding="bytes").load()
    except HoldfastError as error:
        raise HoldfastError(f"{source}: {error}") from None
    except Exception as error:  # malformed pickles fail with nearly any exception
        raise HoldfastError(f"{source}: not readable as a pickle ({type(error).__name__}: {error})") from error


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _STANDS_FOR[module, name]
        except KeyError:
            raise HoldfastError(
                f"refused: the pickle asks for {module}.{name}, which plain data does not need"
            ) from None


def _empty_array(subtype: object, shape: object, kind: object) -> np.ndarray:
    """What numpy's ``_reconstruct`` is called for: an array that the pickle then fills through ``__setstate__``."""
    return np.empty(0, np.uint8)


def _numeric_dtype(code: str | bytes, *_: object) -> np.dtype:
    text = code.decode("ascii") if isinstance(code, bytes) else code
    if text.lstrip("|<>=") not in {"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}:
        raise HoldfastError(f"refused: an array of type {text!r}, where only numbers are expected")
    return np.dtype(text, copy=True)  # the pickle goes on to set its byte order: never on the shared one


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in old protocols."""
    if encoding != "latin1":
        raise HoldfastError(f"refused: text in the encoding {encoding!r}")
    return text.encode("latin1")


_STANDS_FOR: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _empty_array,
    ("numpy._core.multiarray", "_reconstruct"): _empty_array,
    ("numpy", "ndarray"): _NDARRAY,
    ("numpy", "dtype"): _numeric_dtype,
    ("_codecs", "encode"): _latin1,
}
