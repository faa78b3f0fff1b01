"""A check of a mixed gallery as sentences and rows of tables, shared by terminal, Markdown and HTML page.

A record is the result of ``MixedResult.as_json``: scores in [0, 1], None if not measured.
"""

from typing import Any

from holdfast.wording import counted, per_cent

EXPOSURE_MEANING = (
    "Exposure: the share of the first places (1 or 10) that a version's items take, divided by the share that the same "
    "items take when everything is re-embedded; 1 is fair. Recall: the share of a version's right items (at most ten) "
    "among the first ten hits, and the same when everything is re-embedded. Raw: without bridges and scales."
)


def score_rows(record: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """(name, estimate) of each score and of the share kept."""
    rows = [
        (f"{record['score']}, mixed gallery", record["accuracy"]),
        (f"{record['score']}, without bridges and scales", record["raw_accuracy"]),
        (f"{record['score']}, everything re-embedded", record["reembedded"]),
        ("share of re-embedding kept", record["kept"]),
        ("kept without bridges and scales", record["raw_kept"]),
    ]
    return [(name, found) for name, found in rows if found]


VERSION_COLUMNS = ("version", "items", "exposure at 1", "at 10", "recall %", "re-emb. %")


def version_rows(record: dict[str, Any]) -> list[list[str]]:
    """A row for each version and, where bridges or scales are used, one without them ("raw")."""
    rows = []
    for number, version in enumerate(record["versions"], start=1):
        again = per_cent(version["recall_reembedded"], 1)
        for name, search in ((str(number), version["mixed"]), (f"{number}, raw", version["raw"])):
            if search:
                items = f"{version['items']:,}" if search is version["mixed"] else ""
                ratios = [_ratio(search["exposure"].get(k)) for k in ("1", "10")]
                rows.append([name, items, *ratios, per_cent(search["recall"], 1), again])
    return rows


def version_sentences(record: dict[str, Any]) -> list[str]:
    """Which file each version comes from, and by which bridge it is searched."""
    found = []
    for number, version in enumerate(record["versions"], start=1):
        bridge = version["bridge"]
        kind = f", bridge {bridge['kind']}" if bridge else ", bridged" if version["bridged"] else ""
        found.append(f"Version {number}: {version['source']}{kind}.")
    return found


def mixed_basis(record: dict[str, Any]) -> str:
    """How many queries and items were compared, and how."""
    drawn = "classes of queries" if record["clustered"] else "queries"
    classes = f" of {counted(record['classes'], 'class')}" if record["classes"] else ""
    return (
        f"{counted(record['queries'], 'query')}{classes}, {counted(record['gallery'], 'gallery item')} of "
        f"{counted(len(record['versions']), 'version')}; {100 * record['confidence']:g} % intervals by a bootstrap "
        f"over {drawn}."
    )


def mixed_rule(record: dict[str, Any]) -> str:
    """How the verdict was reached."""
    asked = [
        f"{name} {record[key]:g}"
        for name, key in (("the share kept at least", "min_kept"), ("every exposure at least", "min_exposure"))
        if record[key] is not None
    ]
    if not asked:
        return "No smallest accepted value was given, so the numbers are measured and not judged."
    return (
        f"Asked for: {', '.join(asked)}. The verdict is compatible if all intervals lie at or above these values, "
        "incompatible if one lies below, otherwise not shown."
    )


def _ratio(found: dict[str, float] | None) -> str:
    if not found or found["value"] is None:
        return "–"
    low, high = ("–" if found[end] is None else f"{found[end]:.2f}" for end in ("low", "high"))
    return f"{found['value']:.2f} ({low}-{high})"
