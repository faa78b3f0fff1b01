"""The engine on a Qdrant server or cluster, through qdrant-client."""

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from holdfast.core.errors import HoldfastError, UnavailableError, how_to_install
from holdfast.gallery.engines.embedded_process import field_types
from holdfast.gallery.engines.engine import EngineAddress, Found, index_candidates, plain_name, with_ties
from holdfast.gallery.filters import Condition, Filter, Value, stored_field

M, EF_CONSTRUCT, EF_SEARCH = 16, 100, 128
"""Edges per node, candidates when building, candidates when searching."""
REQUEST_SECONDS, RECONNECT_SECONDS = 60, 20
_NUMBERS_AT_ONCE = 1_000_000
"""Of vectors in one request: about 20 MB as JSON; a server's default limit is 32 MB."""

T = TypeVar("T")


def connect(url: str) -> Any:
    """A client of the server at ``url``; the environment variable QDRANT_API_KEY holds its key, if it needs one."""
    key = os.environ.get("QDRANT_API_KEY") or None
    return _package().QdrantClient(url=url, api_key=key, timeout=REQUEST_SECONDS, check_compatibility=False)


class QdrantEngine:
    """Vectors in float32, compared by inner product.

    The server builds indexes in the background, segment by segment, and compares other vectors one by one. A request
    without an answer is sent again; repeating a request never changes its result.

    indexed: False builds no index, so that every search compares every vector.
    """

    parallel = True

    def __init__(self, client: Any, address: EngineAddress, *, indexed: bool) -> None:
        package = _package()
        self._models: Any = package.models
        self._lost = (package.http.exceptions.ResponseHandlingException, ConnectionError)
        self._refused = (package.http.exceptions.UnexpectedResponse,)
        self._client, self._address, self._indexed = client, address, indexed
        self._fields: dict[str, set[str]] = {}  # fields that this process has indexed
        plain_name(address.namespace)
        self._collections = {
            found.name.removeprefix(f"{address.namespace}-")
            for found in self._call(client.get_collections, retry_seconds=0).collections
            if found.name.startswith(f"{address.namespace}-")
        }

    def create(self, collection: str, dim: int) -> None:
        models, address, name = self._models, self._address, self._name(collection)
        hnsw = models.HnswConfigDiff(m=M if self._indexed else 0, ef_construct=EF_CONSTRUCT)

        def work() -> None:
            if self._client.collection_exists(name):
                self._client.delete_collection(name)
            self._client.create_collection(
                name,
                vectors_config=models.VectorParams(size=dim, distance=models.Distance.DOT),
                hnsw_config=hnsw,
                shard_number=address.shards,
                replication_factor=address.replicas,
                # A write is acknowledged when most replicas have it, so that one of them may be lost.
                write_consistency_factor=address.replicas // 2 + 1,
            )

        self._call(work)
        self._collections.add(collection)

    def collections(self) -> list[str]:
        return sorted(self._collections)

    def upsert(
        self, collection: str, keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]
    ) -> None:
        points = [
            self._models.PointStruct(id=key, vector=row, payload=dict(stored_field(*pair) for pair in some.items()))
            for key, row, some in zip(keys, vectors.tolist(), fields, strict=True)
        ]
        self._index_new_fields(collection, [point.payload for point in points])
        at_once = max(1, _NUMBERS_AT_ONCE // max(1, vectors.shape[1]))
        for start in range(0, len(points), at_once):
            part = points[start : start + at_once]
            self._call(functools.partial(self._client.upsert, self._name(collection), part, wait=True))

    def delete(self, collection: str, keys: Sequence[int]) -> None:
        chosen = self._models.PointIdsList(points=list(keys))
        self._call(lambda: self._client.delete(self._name(collection), chosen, wait=True))

    def search(
        self,
        collection: str,
        query: np.ndarray,
        k: int,
        where: Filter | None = None,
        *,
        exact: bool = False,
        share: float = 1.0,
    ) -> list[Found]:
        models = self._models
        candidates = index_candidates(EF_SEARCH, k, share)
        params = models.SearchParams(exact=True) if exact else models.SearchParams(hnsw_ef=candidates)

        def best(count: int) -> list[Any]:
            points: list[Any] = self._call(
                lambda: self._client.query_points(
                    self._name(collection),
                    query=query.tolist(),
                    limit=count,
                    query_filter=None if where is None else models.Filter(must=[self._condition(one) for one in where]),
                    search_params=params,
                    with_payload=False,
                )
            ).points
            return points

        points = with_ties(best, k, lambda point: float(point.score)) if exact else best(k)
        found = [Found(int(point.id), float(point.score)) for point in points]
        return sorted(found, key=lambda one: (-one.score, one.key))[:k]

    def fetch(self, collection: str, keys: Sequence[int]) -> dict[int, np.ndarray]:
        name = self._name(collection)
        records = self._call(lambda: self._client.retrieve(name, list(keys), with_payload=False, with_vectors=True))
        return {int(record.id): np.asarray(record.vector, dtype=np.float32) for record in records}

    def scan(self, collection: str, *, block: int = 1000, after: int = -1) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        name, start = self._name(collection), after + 1
        while True:
            some = functools.partial(self._client.scroll, name, limit=block, with_payload=False, with_vectors=True)
            records, following = self._call(functools.partial(some, offset=start))
            if records:
                vectors = np.array([record.vector for record in records], dtype=np.float32)
                yield np.array([record.id for record in records], dtype=np.int64), vectors
            if following is None:
                return
            start = following

    def count(self, collection: str) -> int:
        return int(self._call(lambda: self._client.count(self._name(collection), exact=True)).count)

    def drop(self, collection: str) -> None:
        self._call(lambda: self._client.delete_collection(self._name(collection)))
        self._collections.discard(collection)
        self._fields.pop(collection, None)

    def build_index(self, collection: str) -> bool:
        """Wait until the server has finished indexing; whether there was anything to wait for."""
        waited = False
        while self._call(lambda: self._client.get_collection(self._name(collection))).status == "yellow":
            waited = True
            time.sleep(0.2)
        return waited

    def unindexed(self, collection: str) -> int:
        """0: the server decides itself what it indexes."""
        return 0

    def claim(self, generation: str) -> str | None:
        return None  # a server has no place for it

    def close(self) -> None:
        self._client.close()

    def _call(self, work: Callable[[], T], *, retry_seconds: float | None = None) -> T:
        """The server's answer; a server that cannot be reached is retried for ``retry_seconds``."""
        deadline: float | None = None
        while True:
            try:
                return work()
            except self._lost as error:
                if deadline is None:
                    deadline = time.monotonic() + (RECONNECT_SECONDS if retry_seconds is None else retry_seconds)
                if time.monotonic() >= deadline:
                    raise UnavailableError(f"{self._address.url}: no answer ({_one_line(error)})") from error
                time.sleep(0.5)
            except self._refused as error:
                raise UnavailableError(f"{self._address.url}: {_one_line(error)}") from error

    def _index_new_fields(self, collection: str, payloads: Sequence[Mapping[str, Value]]) -> None:
        """Index fields before their first values are stored: the server builds its graph with regard to them.

        Without such an index, filtered searches of the graph miss many of the nearest vectors.
        """
        if not self._indexed:
            return
        kinds = self._models.PayloadSchemaType
        known = self._fields.setdefault(collection, set())
        for name, kind in field_types(payloads).items():
            if name not in known:
                schema = kinds.KEYWORD if kind is str else kinds.FLOAT
                make = functools.partial(self._client.create_payload_index, self._name(collection), name, schema)
                self._call(functools.partial(make, wait=True))
                known.add(name)

    def _condition(self, one: Condition) -> Any:
        models = self._models
        if not one.among:
            return models.FieldCondition(key=one.field, range=models.Range(**dict(one.bounds)))
        return models.Filter(should=[self._equal(one.field, value) for value in one.among])

    def _equal(self, field: str, value: Value) -> Any:
        models = self._models
        name, kept = stored_field(field, value)
        if isinstance(kept, str):
            return models.FieldCondition(key=name, match=models.MatchValue(value=kept))
        # By range, so that a whole number equals the same float.
        return models.FieldCondition(key=name, range=models.Range(gte=float(kept), lte=float(kept)))

    def _name(self, collection: str) -> str:
        return f"{self._address.namespace}-{plain_name(collection)}"


def _package() -> Any:
    try:
        import qdrant_client
        import qdrant_client.http.exceptions
    except ImportError:
        raise HoldfastError(f"a gallery on a Qdrant server needs its client: {how_to_install('qdrant')}") from None
    return qdrant_client


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
