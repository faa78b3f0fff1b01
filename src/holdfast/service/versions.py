"""The versions of a gallery as clients see them: shares of the items, and who was found compatible with whom."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from holdfast.gallery import Version

UNKNOWN = "not checked: when it was registered, that version held no items with labels and images that could be read"


def versions_json(versions: Sequence[Version], newest: int, stats: Mapping[str, Any]) -> dict[str, Any]:
    """Oldest first. newest: embeds what is asked; not the last one while that is being rolled back.

    share: of all items, None in an empty gallery; while a backfill runs, that of its target grows.
    matrix: one cell for each pair of a version and an older one, "queries of ``query`` on items of ``items``", with the
    verdict that ``check`` gave when ``query`` was registered, or None and the reason where nothing is known.
    """
    counts = {row["version"]: row for row in stats["versions"]}
    total = sum(row["items"] for row in stats["versions"])
    rows = [
        {
            "number": one.number,
            "name": PurePath(one.source).name,
            "backbone": one.backbone,
            "weights": one.weights_sha256[:12],
            "dim": one.dim,
            "stored_dim": one.stored_dim,
            "slots": one.slots,
            "registered": one.registered,
            "newest": one.number == newest,
            "items": counts.get(one.number, {}).get("items", 0),
            "unindexed": counts.get(one.number, {}).get("unindexed", 0),
            "share": counts.get(one.number, {}).get("items", 0) / total if total else None,
        }
        for one in versions
    ]
    cells = [_cell(new, old) for new in versions for old in versions if old.number < new.number]
    return {"items": total, "versions": rows, "matrix": cells}


def _cell(new: Version, old: Version) -> dict[str, Any]:
    pair = {"query": new.number, "items": old.number}
    for check in new.checks:
        if check["version"] == old.number:
            return {**pair, **{name: value for name, value in check.items() if name != "version"}}
    return {**pair, "verdict": None, "reason": UNKNOWN}
