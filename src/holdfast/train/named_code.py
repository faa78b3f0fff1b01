"""The user's own code, named as ``package.module:name``.

Importing code executes it. A local recipe or a Python call may name code. A model folder may name only code that the
user trusts: the names in the variable ``HOLDFAST_CODE``, separated by spaces.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.core.errors import HoldfastError

TRUSTED_CODE = "HOLDFAST_CODE"
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_named_code(name: str) -> bool:
    """Whether ``name`` is written as ``package.module:name``."""
    return _NAME.fullmatch(name) is not None


def trusted_code() -> list[str]:
    """The names of code that model folders may use."""
    return os.environ.get(TRUSTED_CODE, "").split()


def trust_code(names: Sequence[str]) -> None:
    """Add ``names`` to the trusted ones, for this process and those that it starts."""
    for name in names:
        if not is_named_code(name):
            raise HoldfastError(f"--code {name}: must be written as package.module:function")
    os.environ[TRUSTED_CODE] = " ".join([*trusted_code(), *names])


def import_named(kind: str, name: str) -> Callable[..., Any]:
    """Import the function or class ``name``. Modules in the working directory are found too.

    kind: what is imported ("backbone", "method"), for error messages.
    """
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that it hides no installed module; entry points leave it out
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # the module may raise anything
        raise HoldfastError(f"{kind} {name}: {module_name} does not import ({_reason(error)})") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        instead = "is not there" if found is None else f"is {type(found).__name__}, not a function"
        raise HoldfastError(f"{kind} {name}: {attribute} {instead} in {module_name}")
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
