"""Code of the user's own, named as ``package.module:name``.

Naming code is running it, so only someone at this machine may: a local recipe or a call, never a model folder.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable
from typing import Any

from holdfast.errors import HoldfastError

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")


def is_named_code(name: str) -> bool:
    """Whether ``name`` is written as ``package.module:name``."""
    return _NAME.fullmatch(name) is not None


def import_named(kind: str, name: str) -> Callable[..., Any]:
    """The function or class that ``name`` means, imported; modules in the working directory are found too."""
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # at the end, where it hides nothing that is installed; an entry point leaves it out
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs the module: whatever it raises is the reason
        raise HoldfastError(f"{kind} {name}: {module_name} does not import ({_reason(error)})") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        instead = "is not there" if found is None else f"is {type(found).__name__}, not a function"
        raise HoldfastError(f"{kind} {name}: {attribute} {instead} in {module_name}")
    return found


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
