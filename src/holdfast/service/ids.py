"""Ids from outside. They are never file names here, but what looks like a way out of a folder is refused all the same:
whoever later writes an export or a cache by id would be the one to find out."""

from urllib.parse import unquote

from holdfast.errors import HoldfastError
from holdfast.gallery.items import checked_id


def safe_id(given: str) -> str:
    """An id that a gallery takes and that, read as a relative path, stays below its folder."""
    name = checked_id(given)
    for form in (name, unquote(name)):
        if form.startswith(("/", "~")) or "\\" in form or "\0" in form or {".", ".."} & set(form.split("/")):
            raise HoldfastError(f"id {name[:80]!r}: no leading / or ~, no backslash, no part that is . or ..")
    return name
