"""What a gallery holds, in numbers."""

from typing import Any

from holdfast.gallery.parts import Parts


def holdings(parts: Parts) -> dict[str, Any]:
    """Items, vectors and sizes by version; see ``Gallery.stats``."""
    counts = parts.catalogue.counts()
    with parts.searches.one():
        rows = [
            {
                "version": one.number,
                "items": counts.get(one.number, 0),
                "vectors": parts.engine.count(one.collection),
                "unindexed": parts.engine.unindexed(one.collection),
                "stored_dim": one.stored_dim,
                "dim": one.dim,
            }
            for one in parts.models.versions()
        ]
    return {
        "items": sum(counts.values()),
        **parts.catalogue.described(),
        "fields": sorted(parts.catalogue.fields),
        "bytes_on_disk": parts.folder.bytes_on_disk(),
        "versions": rows,
    }
