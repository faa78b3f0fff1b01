"""Items of a gallery: as they are added, as they are stored, and as hits of a search."""

import html
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from holdfast.core.errors import HoldfastError
from holdfast.gallery.filters import LABEL, Value, check_text, checked_name, plain_value
from holdfast.gallery.item_limits import LONGEST_ID, MOST_FIELDS

if TYPE_CHECKING:
    from holdfast.embedders.model_inputs import ImageLike


@dataclass(frozen=True)
class Item:
    """One item to add to a gallery.

    id: text of at most 512 characters, unique in the gallery; never used as a file name.
    image: the image to embed (or the input vector, for models that take vectors).
    vector: instead of an image, its feature by the version it is added to: full (K - 1 numbers) or compact. Without
        image and vector the image is read from ``path``.
    metadata: names to text, numbers, true or false; searches can filter by them.
    label: the class, text; searches can filter by it. An empty text is no label.
    path: the image's file, used to show the image and to re-embed it; stored as an absolute path.

    >>> from holdfast import Item
    >>> item = Item("shoes/17", path="photos/shoes/17.jpg", label="shoes", metadata={"price": 49.9})
    >>> item.id, item.metadata["price"]
    ('shoes/17', 49.9)
    """

    id: str
    image: "ImageLike | None" = None
    vector: ArrayLike | None = None
    metadata: Mapping[str, Value] = field(default_factory=dict)
    label: str | None = None
    path: str | Path | None = None


@dataclass(frozen=True)
class Hit:
    """One search result.

    score: hits are ranked by it. It is the cosine where all versions share a space, and otherwise the cosine put on a
        scale that is the same for all versions (``holdfast.bridges.ScoreScale``).
    cosine: of query and item in the space of the version that embedded the item.
    version: the version that embedded the item.
    """

    id: str
    score: float
    cosine: float
    version: int
    label: str | None = None
    metadata: Mapping[str, Value] = field(default_factory=dict)
    path: str | None = None

    def as_json(self) -> dict[str, Any]:
        shown: dict[str, Any] = {"id": self.id, "score": self.score, "cosine": self.cosine, "version": self.version}
        if self.label is not None:
            shown["label"] = self.label
        if self.path is not None:
            shown["path"] = self.path
        return {**shown, "metadata": dict(self.metadata)} if self.metadata else shown


class Hits(list[Hit]):
    """Search results, best first. A notebook shows them as a table, without paths of files."""

    def _repr_html_(self) -> str:
        if not self:
            return "<p>no hits</p>"
        columns = {
            "": [str(rank) for rank in range(1, len(self) + 1)],
            "id": [hit.id for hit in self],
            "label": [hit.label or "" for hit in self],
            "score": [f"{hit.score:.4f}" for hit in self],
            "version": [str(hit.version) for hit in self],
            "metadata": [", ".join(f"{name}={value}" for name, value in hit.metadata.items()) for hit in self],
        }
        columns = {name: cells for name, cells in columns.items() if any(cells)}
        head, rows = "".join(f"<th>{name}</th>" for name in columns), zip(*columns.values(), strict=True)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return f"<table><tr>{head}</tr>{body}</table>"


@dataclass(frozen=True)
class StoredItem:
    """An item as the catalogue stores it."""

    key: int
    id: str
    version: int
    label: str | None
    metadata: Mapping[str, Value]
    path: str | None

    def hit(self, score: float, cosine: float) -> Hit:
        return Hit(self.id, score, cosine, self.version, self.label, self.metadata, self.path)

    def fields(self) -> dict[str, Value]:
        """The fields that an engine can filter by."""
        return {**self.metadata, **({} if self.label is None else {LABEL: self.label})}


def checked_id(given: object) -> str:
    """The id, if it is text of an allowed length."""
    if not isinstance(given, str) or not 0 < len(given) <= LONGEST_ID:
        raise HoldfastError(f"id {str(given)[:40]!r}: an id is text of 1 to {LONGEST_ID} characters")
    check_text(f"id {given!r}", given)
    return given


_DIRECTION_MARKS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_INVISIBLE = ("Zs", "Zl", "Zp", "Cf", "Cn", "Mn", "Me")
_BLANKS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Letters and symbols without ink."""


def checked_new_id(given: object) -> str:
    """The id of an item that is added, if people can also read it. Items of earlier releases may have other ids."""
    name = checked_id(given)
    kinds = {unicodedata.category(letter) for letter in name}
    if all(letter in _BLANKS or unicodedata.category(letter) in _INVISIBLE for letter in name):
        raise HoldfastError(f"id {name[:40]!r}: has no visible character")
    if kinds & {"Zl", "Zp"} or not _DIRECTION_MARKS.isdisjoint(name):
        raise HoldfastError(f"id {name[:40]!r}: holds line separators or marks of writing direction; remove them")
    return name


def checked(item: Item, version: int) -> StoredItem:
    """The item without image and vector; refused if some store could not hold its text and numbers unchanged.

    Its key is 0 until the catalogue reserves one.
    """
    name = checked_new_id(item.id)
    if not isinstance(item.metadata, Mapping):
        raise HoldfastError(f"item {name!r}: metadata must be a dict of fields, got {type(item.metadata).__name__}")
    if len(item.metadata) > MOST_FIELDS:
        raise HoldfastError(f"item {name!r}: {len(item.metadata)} metadata fields; at most {MOST_FIELDS} are kept")
    metadata = {}
    for field_name, value in item.metadata.items():
        where = f"item {name!r}, field {field_name!r}"
        metadata[checked_name(field_name)] = plain_value(where, value)
        if isinstance(value, str):
            check_text(where, value)
    label = None if item.label is None or item.label == "" else str(item.label)  # an empty field of a form or table
    if label is not None:
        check_text(f"label of item {name!r}", label)
    path = None if item.path is None else str(Path(item.path).absolute())
    if path is not None and not path.isascii() and any(unicodedata.category(letter) == "Cs" for letter in path):
        raise HoldfastError(f"item {name!r}: the path of its image is not valid Unicode; rename the file or its folder")
    return StoredItem(0, name, version, label, metadata, path)
