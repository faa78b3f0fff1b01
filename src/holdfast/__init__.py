"""Holdfast: embedding models that can be updated and replaced without re-indexing what is already stored.

``import holdfast`` loads none of its packages. A public name is imported when it is first used. The public names and
their types are listed once, in ``__init__.pyi``; ``dir(holdfast)`` shows them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
