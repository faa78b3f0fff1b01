"""A restricted unpickler for untrusted pickles of plain data and numeric arrays.

None of numpy's own functions is called with values of the pickle: ``numpy.ndarray`` with an object dtype would read raw
bytes as pointers, and ``dtype.__setstate__`` accepts descriptions of memory that is not there. The few names that such
pickles contain are replaced by stand-ins of this file; every other name, and every instruction that plain data does not
need, is refused. An array is a view of its bytes in the pickle, so its size is bounded by the size of the file.
"""

import io
import math
import pickle
from typing import Any, BinaryIO, ClassVar

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import printable

MOST_INSTRUCTIONS = 4_000_000
"""A batch of ImageNet32, with a label for each of 128,000 images, has 0.2 million."""

_DEEPEST = 8
_NUMBERS = {"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}


def load_plain(stream: BinaryIO, source: str) -> Any:
    """The dictionaries, lists, strings and arrays in a pickle. Strings of Python 2 become bytes, arrays are read-only.

    source: name of the pickle in errors.
    """
    content = stream.read()
    try:
        return _without_stand_ins(_PlainUnpickler(content).load(), set(), 0)
    except HoldfastError as error:
        raise HoldfastError(f"{source}: {error}") from None
    except Exception as error:  # malformed pickles fail with nearly any exception
        reason = printable(f"{type(error).__name__}: {error}"[:200])
        raise HoldfastError(f"{source}: not readable as a pickle ({reason})") from error


def with_text_keys(value: Any, source: str) -> dict[str, Any]:
    """A dictionary from a pickle, with its keys as text. Any other value is refused."""
    if not isinstance(value, dict):
        raise HoldfastError(f"{source}: expected a dictionary, found {type(value).__name__}")
    return {key.decode("latin1") if isinstance(key, bytes) else str(key): item for key, item in value.items()}


def whole_numbers(value: Any, source: str) -> list[int]:
    """A list or 1-D array of whole numbers that fit 64 bits, as a list; refused if it is anything else."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        value = value.tolist()
    if not isinstance(value, list) or not all(type(one) is int and -(2**63) <= one < 2**63 for one in value):
        raise HoldfastError(f"{source}: must be a list of whole numbers")
    return value


class _NumberType:
    """Stands for ``numpy.dtype``: a type of numbers, of which the pickle may set the byte order and nothing else."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, code: object) -> None:
        text = code.decode("ascii", "replace") if isinstance(code, bytes) else code
        if not isinstance(text, str) or text.lstrip("|<>=") not in _NUMBERS or len(text) > 3:
            raise HoldfastError(f"refused: an array of type {text!r:.40}, where only numbers are expected")
        self.dtype = np.dtype(text)

    def set_state(self, state: object) -> None:
        """state: (version, byte order, None, None, None, -1, -1, flags), as numpy writes it for a type of numbers."""
        if not isinstance(state, tuple) or len(state) < 5 or any(part is not None for part in state[2:5]):
            raise HoldfastError("refused: a type of numbers with fields or a shape")
        order = state[1].decode("ascii", "replace") if isinstance(state[1], bytes) else state[1]
        if order not in ("<", ">", "=", "|"):
            raise HoldfastError(f"refused: a byte order {order!r:.40}")
        if order != "|":
            self.dtype = self.dtype.newbyteorder(order)  # type: ignore[arg-type]


class _Array:
    """Stands for an array until the pickle is read."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self.array = np.empty(0, np.uint8)

    def set_state(self, state: object) -> None:
        """state: (version, shape, type, Fortran order, bytes), as numpy writes it."""
        if not isinstance(state, tuple) or len(state) != 5:
            raise HoldfastError("refused: an array without shape, type and bytes")
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _NumberType) or not isinstance(raw, bytes) or not isinstance(shape, tuple):
            raise HoldfastError("refused: an array that does not consist of numbers")
        if not all(type(side) is int and 0 <= side <= len(raw) for side in shape):
            raise HoldfastError("refused: an array whose shape does not fit its bytes")
        if math.prod(shape) * kind.dtype.itemsize != len(raw):
            raise HoldfastError(f"refused: an array of {len(raw)} bytes whose shape needs another number")
        self.array = np.ndarray(shape, kind.dtype, raw, order="F" if fortran else "C")


# Instructions that plain data needs; the others call classes, share or change objects, or read other streams.
_INSTRUCTIONS = (
    pickle.PROTO + pickle.FRAME + pickle.STOP + pickle.MARK
    + pickle.PUT + pickle.BINPUT + pickle.LONG_BINPUT + pickle.MEMOIZE
    + pickle.GET + pickle.BINGET + pickle.LONG_BINGET
    + pickle.NONE + pickle.NEWTRUE + pickle.NEWFALSE
    + pickle.INT + pickle.BININT + pickle.BININT1 + pickle.BININT2 + pickle.LONG + pickle.LONG1 + pickle.LONG4
    + pickle.FLOAT + pickle.BINFLOAT
    + pickle.STRING + pickle.BINSTRING + pickle.SHORT_BINSTRING
    + pickle.BINBYTES + pickle.SHORT_BINBYTES + pickle.BINBYTES8
    + pickle.UNICODE + pickle.BINUNICODE + pickle.SHORT_BINUNICODE + pickle.BINUNICODE8
    + pickle.TUPLE + pickle.EMPTY_TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3
    + pickle.LIST + pickle.EMPTY_LIST + pickle.APPEND + pickle.APPENDS
    + pickle.DICT + pickle.EMPTY_DICT + pickle.SETITEM + pickle.SETITEMS
    + pickle.GLOBAL + pickle.STACK_GLOBAL + pickle.REDUCE + pickle.BUILD
)  # fmt: skip


# The version in Python: that in C allocates 64 GB for a memo index of 2^32.
_UNPICKLER: Any = vars(pickle)["_Unpickler"]


class _PlainUnpickler(_UNPICKLER):
    dispatch: ClassVar[dict[int, Any]] = {code: _UNPICKLER.dispatch[code] for code in _INSTRUCTIONS}

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content), encoding="bytes")
        self.dispatch = _CountedInstructions(self.dispatch)  # type: ignore[misc]
        self._most_encoded = 2 * len(content)
        self._functions: dict[tuple[str, str], Any] = {
            ("numpy.core.multiarray", "_reconstruct"): _new_array,
            ("numpy._core.multiarray", "_reconstruct"): _new_array,
            ("numpy", "ndarray"): None,  # only passed to _reconstruct
            ("numpy", "dtype"): _new_number_type,
            ("_codecs", "encode"): self._latin1,
        }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self._functions[module, name]
        except KeyError:
            shown = printable(f"{module}.{name}"[:100])
            raise HoldfastError(f"refused: the pickle contains {shown}, which plain data does not need") from None

    def _latin1(self, text: object, encoding: object) -> bytes:
        """Stands for ``_codecs.encode``, by which Python 3 writes bytes in old protocols."""
        if encoding != "latin1" or not isinstance(text, str):
            raise HoldfastError("refused: text in another encoding than latin1")
        self._most_encoded -= len(text)  # the same text may be encoded again and again
        if self._most_encoded < 0:
            raise HoldfastError("refused: more bytes than the file has")
        return text.encode("latin1")

    def load_reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack[-1]
        if not callable(function) or not isinstance(arguments, tuple):
            raise HoldfastError("refused: a call of something that is not a function")
        self.stack[-1] = function(*arguments)

    def load_build(self) -> None:
        state, made = self.stack.pop(), self.stack[-1]
        if not isinstance(made, _Array | _NumberType):
            raise HoldfastError("refused: the state of something that is not an array")
        made.set_state(state)

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_items([key, value])

    def load_setitems(self) -> None:
        self._set_items(self.pop_mark())

    def load_dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set_items(items)

    def _set_items(self, items: list[Any]) -> None:
        """Keys are text, whose hashes an attacker does not know: crafted numbers would all collide."""
        target = self.stack[-1]
        if (
            not isinstance(target, dict)
            or len(items) % 2
            or not all(isinstance(key, str | bytes) for key in items[::2])
        ):
            raise HoldfastError("refused: a dictionary whose keys are not text")
        target.update(zip(items[::2], items[1::2], strict=True))

    def load_append(self) -> None:
        value = self.stack.pop()
        self._extend([value])

    def load_appends(self) -> None:
        self._extend(self.pop_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise HoldfastError("refused: an element of something that is not a list")
        target.extend(items)

    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends


class _CountedInstructions(dict[int, Any]):
    """The functions of the known instructions; each look-up counts, because there is one for each instruction."""

    def __init__(self, functions: dict[int, Any]) -> None:
        super().__init__(functions)
        self._left = MOST_INSTRUCTIONS

    def __getitem__(self, code: int) -> Any:
        self._left -= 1
        if self._left < 0:
            raise HoldfastError(f"refused: more than {MOST_INSTRUCTIONS:,} instructions")
        if code not in self:
            raise HoldfastError(f"refused: instruction {code}, which plain data does not need, or not a pickle")
        return super().__getitem__(code)


def _new_array(*_: object) -> _Array:
    return _Array()


def _new_number_type(code: object = None, *_: object) -> _NumberType:
    return _NumberType(code)


def _without_stand_ins(value: Any, seen: set[int], depth: int) -> Any:
    """``value`` with arrays in place of their stand-ins.

    A container that occurs twice is refused: lists of such lists grow exponentially when they are written out.
    """
    if isinstance(value, _Array):
        return value.array
    if isinstance(value, _NumberType) or callable(value):
        raise HoldfastError("refused: a type or function, where data is expected")
    if not isinstance(value, dict | list | tuple) or not value:
        return value
    if id(value) in seen or depth == _DEEPEST:
        raise HoldfastError("refused: data that is nested deeply, or contains itself")
    seen.add(id(value))
    if isinstance(value, dict):
        return {key: _without_stand_ins(item, seen, depth + 1) for key, item in value.items()}
    plain = (_without_stand_ins(item, seen, depth + 1) for item in value)
    return list(plain) if isinstance(value, list) else tuple(plain)
