"""Whether a gallery finds what it should: labelled items asked by their images, each with itself left out."""

import contextlib
import zlib
from dataclasses import dataclass

import numpy as np
import torch

from holdfast.errors import HoldfastError
from holdfast.gallery.forward_pass import images_at_once
from holdfast.gallery.models import ready
from holdfast.gallery.parts import Parts
from holdfast.gallery.searching import Question, search_all
from holdfast.gallery.spaces import unit_row
from holdfast.gallery.versions import Version

MOST_PROBES = 200
_LOOKED_AT = 10


@dataclass(frozen=True)
class Probe:
    id: str
    label: str
    vector: np.ndarray


class Probes:
    """Up to 200 items with a label that others have too and an image that can be read, embedded by one version.

    Which ones is a matter of their ids alone, so a backfill that was killed and goes on asks the same questions.
    """

    def __init__(self, parts: Parts, source: Version, most: int = MOST_PROBES) -> None:
        self._parts, self._source = parts, source
        self.probes = self._embedded(most)

    def accuracy(self) -> float:
        """Share of probes whose nearest labelled item, itself left out, has their label; in [0, 1], NaN without any.

        An item with no labelled one among its ten nearest counts as wrong.
        """
        right = [self._nearest_label(probe) == probe.label for probe in self.probes]
        return sum(right) / len(right) if right else float("nan")

    def _nearest_label(self, probe: Probe) -> str | None:
        parts = self._parts
        question = Question(probe.vector, self._source, _LOOKED_AT + 1, None, exact=False)
        with parts.searches.one():
            hits = search_all(parts.engine, parts.catalogue, parts.models, question)
        return next((hit.label for hit in hits if hit.id != probe.id and hit.label is not None), None)

    def _embedded(self, most: int) -> list[Probe]:
        parts = self._parts
        found: list[Probe] = []
        rows = parts.catalogue.read(
            "SELECT id, label, path FROM items WHERE path IS NOT NULL AND label IN "
            "(SELECT label FROM items WHERE label IS NOT NULL GROUP BY label HAVING count(*) > 1)"
        )
        rows.sort(key=lambda row: (zlib.crc32(row[0].encode()), row[0]))
        encoder = parts.models.encoder(self._source)
        at_once, start = images_at_once(encoder, parts.models.device), 0
        while start < len(rows) and len(found) < most:
            # No more than are wanted, so that which ones are taken does not depend on the device.
            some = rows[start : start + min(at_once, most - len(found))]
            start += len(some)
            opened = []
            for row in some:
                with contextlib.suppress(HoldfastError):
                    opened.append((row, ready(encoder, row[2])))
            if not opened:
                continue
            vectors = parts.models.image_vectors(torch.cat([image for _, image in opened]), self._source, encoder)
            for (row, _), vector in zip(opened, vectors, strict=True):
                with contextlib.suppress(HoldfastError):
                    found.append(Probe(row[0], row[1], unit_row(vector, "probe", self._source.number)))
        return found
