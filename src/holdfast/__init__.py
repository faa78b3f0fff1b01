"""Holdfast: embedding models that can be updated and replaced without re-indexing what is already stored.

``import holdfast`` loads none of its packages. A public name is imported when it is first used. The public names and
their types are listed once, in ``__init__.pyi``; ``dir(holdfast)`` shows them.
"""

from typing import Any

import lazy_loader

_import_name, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    try:
        return _import_name(name)
    except ModuleNotFoundError as error:
        from holdfast.core.errors import missing_extra

        if (needed := missing_extra(error)) is None:
            raise
        raise ImportError(f"holdfast.{name}: {needed}") from error
