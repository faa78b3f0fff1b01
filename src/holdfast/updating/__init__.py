"""One's own images: version 1 from nothing, and then exactly the next version, compatible with the one in use."""

from holdfast.updating.version import start, update

__all__ = ["start", "update"]
