"""An existing Qdrant collection, read in place: on a server (http, https) or in a folder (qdrant:FOLDER)."""

import contextlib
import hashlib
import os
import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, first_line, how_to_install, unknown_name
from holdfast.gallery.attached.source import Address, Neighbour, Sample, float32_rows, local_folder
from holdfast.gallery.engines.engine import with_ties
from holdfast.gallery.filters import LABEL, Condition, Filter, Value, parse_filter

OWN_ID = "id"
KEY = "QDRANT_API_KEY"
"""The environment variable with the key of a server."""
_BLOCK = 1000
_LOOKED_AT = 100
"""Points whose payload tells which fields there are."""


class QdrantSource:
    """Points of one collection. Only calls that read are made; a read-only API key makes sure of it.

    Any number of threads may search a server at once: the client keeps a pool of HTTP connections. The client's local
    mode, for a folder, runs one call at a time.
    """

    def __init__(self, address: Address) -> None:
        try:
            import qdrant_client
        except ImportError:
            raise HoldfastError(f"a Qdrant collection needs qdrant-client: {how_to_install('qdrant')}") from None
        self._models: Any = qdrant_client.models
        self._address = address
        self.name = f"{address.shown} {address.table}"
        folder = local_folder(address.url)
        if folder is not None and not folder.is_dir():
            raise HoldfastError(f"{folder}: no such folder of Qdrant's")
        self._local = folder is not None
        self._client: Any = None
        self._one_at_a_time: Any = threading.Lock() if self._local else contextlib.nullcontext()
        try:
            if folder is not None:
                self._client = qdrant_client.QdrantClient(path=str(folder))
            else:
                url, key = address.url.removeprefix("qdrant:"), os.environ.get(KEY)
                self._client = qdrant_client.QdrantClient(url=url, api_key=key, check_compatibility=False)
            known = [one.name for one in self._client.get_collections().collections]
        except Exception as error:  # the client raises errors of its transport: no common class
            raise UnavailableError(f"{address.shown}: cannot be opened ({first_line(error)})") from None
        try:
            if address.table not in known:
                raise unknown_name(f"collection of {address.shown}", address.table, known or ["none"])
            self.dim, self.index = self._checked_vector()
            self._seen = self._payload_fields()
        except BaseException:
            self._client.close()
            raise

    @property
    def fields(self) -> list[str]:
        """Payload fields with an index, and those of the first points; others may exist."""
        return sorted(self._seen | ({LABEL} if self._address.label else set()))

    def parse_filter(self, given: Mapping[str, Any] | None) -> Filter | None:
        fields = [str(field) for field in given] if isinstance(given, Mapping) else []
        for field in fields:
            if field not in self.fields and self._any_point_has(field):
                self._seen = self._seen | {field}
        return parse_filter(given, self.fields)

    def search(self, query: np.ndarray, k: int, where: Filter | None = None, *, exact: bool = False) -> list[Neighbour]:
        conditions = None if where is None else self._models.Filter(must=[self._condition(one) for one in where])

        def best(count: int) -> list[Any]:
            points: list[Any] = self._call(
                "query_points",
                query=query.astype(np.float32).tolist(),
                using=self._address.vector or None,
                query_filter=conditions,
                limit=count,
                search_params=self._models.SearchParams(exact=True) if exact and not self._local else None,
                with_payload=True,
                with_vectors=self._vectors() if self._dot else False,
            ).points
            return points

        points = with_ties(best, k, lambda point: float(point.score)) if exact or self._local else best(k)
        points = sorted(points, key=lambda point: (-point.score, self._id(point)))[:k]
        nearby = [Neighbour(self._id(p), self._cosine(p, query), self._label(p)) for p in points]
        return sorted(nearby, key=lambda one: (-one.cosine, one.id))

    def fetch(self, ids: list[str]) -> dict[str, np.ndarray]:
        return {self._id(point): self._vector(point) for point in self._points(ids, with_vectors=self._vectors())}

    def labels(self, ids: list[str]) -> dict[str, str | None]:
        return {self._id(point): self._label(point) for point in self._points(ids, with_vectors=False)}

    def _points(self, ids: list[str], *, with_vectors: Any) -> list[Any]:
        """The points of those ids that exist, with their payload."""
        if self._address.id == OWN_ID:
            given = [own for own in map(_point_id, ids) if own is not None]
            if not given:
                return []
            return list(self._call("retrieve", ids=given, with_vectors=with_vectors, with_payload=True))
        if not ids:
            return []  # without a condition the filter would match every point
        numbers = [number for name in ids if (number := _number(name, 2**63 - 1)) is not None]
        conditions = [
            self._models.FieldCondition(key=self._address.id, match=self._models.MatchAny(any=wanted))
            for wanted in (ids, numbers)  # Qdrant takes no list of both kinds
            if wanted
        ]
        points, _ = self._call(
            "scroll",
            scroll_filter=self._models.Filter(should=conditions),
            limit=len(ids) + len(numbers),
            with_vectors=with_vectors,
            with_payload=True,
        )
        return list(points)

    def sample(self, count: int | None, seed: int = 0) -> Sample:
        # Qdrant has no reproducible sample: read all ids and take those with the smallest hashes.
        points = list(self._scroll(with_vectors=False))
        chosen = sorted(points, key=lambda point: hashlib.md5(f"{self._id(point)}/{seed}".encode()).digest())
        chosen = chosen if count is None else chosen[:count]
        found = []
        for start in range(0, len(chosen), _BLOCK):
            part = [point.id for point in chosen[start : start + _BLOCK]]
            records = self._call("retrieve", ids=part, with_vectors=self._vectors(), with_payload=True)
            by_id = {record.id: record for record in records}
            found += [by_id[name] for name in part if name in by_id]
        vectors = float32_rows(np.array([self._vector(point) for point in found]), self.name)
        labels = None
        if self._address.label is not None:
            given = [self._label(point) for point in found]
            if None in given:
                raise HoldfastError(f"{self.name}: {given.count(None)} sampled points have no {self._address.label}")
            labels = np.array(given)
        return Sample(np.array([self._id(point) for point in found]), vectors, labels)

    def count(self, *, labelled: bool = False) -> int:
        if not labelled:
            return int(self._call("count", exact=True).count)
        if self._address.label is None:
            return 0
        empty = self._models.IsEmptyCondition(is_empty=self._models.PayloadField(key=self._address.label))
        return int(self._call("count", exact=True, count_filter=self._models.Filter(must_not=[empty])).count)

    def close(self) -> None:
        self._client.close()

    def _checked_vector(self) -> tuple[int, str]:
        where = self._address
        config = self._call("get_collection").config
        vectors = config.params.vectors or {}
        named = vectors if isinstance(vectors, dict) else {"": vectors}
        if where.vector not in named:
            sparse = config.params.sparse_vectors or {}
            if where.vector in sparse:
                raise HoldfastError(f"{where.table}: {where.vector!r} is a sparse vector, not a dense one")
            raise unknown_name(f"vector of {where.table}", where.vector, [repr(name) for name in named])
        chosen = named[where.vector]
        if chosen.distance not in (self._models.Distance.COSINE, self._models.Distance.DOT):
            raise HoldfastError(f"{where.table}: compares by {chosen.distance.value}; cosine or dot is needed")
        if getattr(chosen, "multivector_config", None) is not None:
            raise HoldfastError(f"{where.table}: {where.vector!r} is many vectors for each point; one is needed")
        self._dot = chosen.distance == self._models.Distance.DOT
        return int(chosen.size), f"the collection's own index, {chosen.distance.value.lower()}"

    def _scroll(self, *, with_vectors: Any) -> Iterator[Any]:
        start = None
        fields = [name for name in (self._address.id, self._address.label) if name not in (None, OWN_ID)]
        while True:
            points, start = self._call(
                "scroll", offset=start, limit=_BLOCK, with_vectors=with_vectors, with_payload=fields or False
            )
            yield from points
            if start is None:
                return

    def _payload_fields(self) -> set[str]:
        """The fields that have a payload index, or that one of the first points has."""
        schema = self._call("get_collection").payload_schema or {}
        points, _ = self._call("scroll", limit=_LOOKED_AT, with_payload=True, with_vectors=False)
        return {*schema, *(name for point in points for name in point.payload or {})}

    def _any_point_has(self, field: str) -> bool:
        models = self._models
        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=field))
        points, _ = self._call("scroll", scroll_filter=models.Filter(must_not=[empty]), limit=1, with_payload=False)
        return bool(points)

    def _condition(self, one: Condition) -> Any:
        models = self._models
        name = self._address.label if one.field == LABEL and self._address.label else one.field
        if not one.among:
            return models.FieldCondition(key=name, range=models.Range(**dict(one.bounds)))
        return models.Filter(should=[self._equal(name, value) for value in one.among])

    def _equal(self, name: str, value: Value) -> Any:
        models = self._models
        if isinstance(value, bool | str):
            return models.FieldCondition(key=name, match=models.MatchValue(value=value))
        # By range, so that a whole number equals the same float.
        return models.FieldCondition(key=name, range=models.Range(gte=float(value), lte=float(value)))

    def _call(self, call: str, **given: Any) -> Any:
        try:
            with self._one_at_a_time:
                return getattr(self._client, call)(self._address.table, **given)
        except Exception as error:  # as above
            raise UnavailableError(f"{self.name}: {first_line(error)}") from None

    def _vectors(self) -> Any:
        return [self._address.vector] if self._address.vector else True

    def _vector(self, point: Any) -> np.ndarray:
        held = point.vector[self._address.vector] if isinstance(point.vector, dict) else point.vector
        return np.asarray(held, dtype=np.float32)

    def _cosine(self, point: Any, query: np.ndarray) -> float:
        if not self._dot:
            return float(point.score)
        vector = self._vector(point)  # the cosine needs the lengths too
        return float(vector @ query / max(float(np.linalg.norm(vector) * np.linalg.norm(query)), 1e-12))

    def _id(self, point: Any) -> str:
        return str(point.id if self._address.id == OWN_ID else (point.payload or {}).get(self._address.id, point.id))

    def _label(self, point: Any) -> str | None:
        value = None if self._address.label is None else (point.payload or {}).get(self._address.label)
        return None if value is None else str(value)


def _point_id(name: str) -> int | str | None:
    """A point's own id, a number of 64 bits or a UUID; None if no point can have this id."""
    number = _number(name, 2**64 - 1)
    if number is not None:
        return number
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return None


def _number(name: str, most: int) -> int | None:
    """The number from 0 to ``most`` that an id is; None for any other text."""
    # A longer text may have too many digits for ``int``.
    found = int(name) if name.isascii() and name.isdigit() and len(name) <= 40 else most + 1
    return found if found <= most else None
