"""How vectors, fields and filters look to PostgreSQL and pgvector."""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from holdfast.gallery.filters import Filter, Value

_HEADER = b"PGCOPY\n\xff\r\n\x00" + bytes(8)
_END = struct.pack(">h", -1)
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


class Packed(bytes):
    """A vector as pgvector sends and takes it: how many numbers (2 bytes), 2 zero bytes, then float32, big-endian."""


def packed(vector: np.ndarray) -> Packed:
    return Packed(struct.pack(">hh", vector.size, 0) + vector.astype(">f4").tobytes())


def unpacked(rows: Sequence[bytes]) -> np.ndarray:
    """N x dim, float32."""
    return np.stack([np.frombuffer(row, dtype=">f4", offset=4) for row in rows]).astype(np.float32)


def speak_vectors(connection: Any) -> None:
    """Let a psycopg connection send ``Packed`` as it is; what it stands for follows from the statement."""
    from psycopg.adapt import Dumper
    from psycopg.pq import Format

    class PackedDumper(Dumper):
        format = Format.BINARY

        def dump(self, obj: Any) -> bytes:
            return bytes(obj)

    connection.adapters.register_dumper(Packed, PackedDumper)


def copy_rows(keys: Sequence[int], vectors: np.ndarray, fields: Sequence[Mapping[str, Value]]) -> bytes:
    """Rows of (bigint, vector, jsonb) for COPY in its binary format."""
    rows = [_HEADER]
    for key, vector, row in zip(keys, vectors, fields, strict=True):
        column, document = packed(vector), b"\x01" + json.dumps(dict(row)).encode()
        rows.append(struct.pack(">hiqi", 3, 8, key, len(column)) + column)
        rows.append(struct.pack(">i", len(document)) + document)
    return b"".join([*rows, _END])


def condition(where: Filter | None, parameters: dict[str, Any]) -> str:
    """What follows WHERE; the values go to ``parameters``.

    jsonb compares by type, and 1 equals 1.0 there. Its order puts types one after the other, so a bound asks for a
    number as well; no value is cast, which would fail on a text whatever stands beside it.
    """
    parts = ["true"]
    for number, one in enumerate(where or ()):
        field, values = f"field{number}", f"values{number}"
        parameters[field] = one.field
        column = f"(fields -> %({field})s::text)"
        if one.among:
            parameters[values] = [json.dumps(value) for value in one.among]
            parts.append(f"{column} = ANY(%({values})s::text[]::jsonb[])")
            continue
        parts.append(f"jsonb_typeof({column}) = 'number'")
        for name, bound in one.bounds:
            parameters[f"{name}{number}"] = json.dumps(bound)
            parts.append(f"{column} {_SIGNS[name]} %({name}{number})s::text::jsonb")
    return " AND ".join(parts)
