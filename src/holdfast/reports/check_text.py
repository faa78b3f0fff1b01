"""A check as sentences and rows of tables, for terminal, Markdown and HTML page; and as Markdown for a pull request.

A record is the ``as_json`` of a CheckResult, HistoryResult or MixedResult: scores in [0, 1], None if not measured.
"""

import re
from collections.abc import Sequence
from typing import Any

from holdfast.core.wording import counted, decimal, per_cent

NOT_COVERED = (
    "The intervals cover the choice of queries: other queries of the same kind on the same gallery. They do not cover "
    "another training seed, other gallery items or other classes: the same models trained again may get another "
    "verdict."
)


def points(value: float | None, digits: int = 2) -> str:
    """A difference of scores in per cent points, with its sign."""
    return "–" if value is None else f"{100 * value:+.{digits}f}".replace("-", "−")


def gain_with_interval(found: dict[str, float]) -> str:
    """A gain and its interval, in points."""
    return f"{points(found['value'])} ({points(found['low'])} to {points(found['high'])})"


def confidence_level(record: dict[str, Any]) -> str:
    return f"{100 * record['confidence']:g} %"


def headline(record: dict[str, Any]) -> str:
    """The answer that a release is decided by: whether at most the accepted loss is lost; else the verdict."""
    return loss_sentence(record) or verdict_sentence(record)


def lead_sentences(record: dict[str, Any]) -> list[str]:
    """What follows the headline: share of re-embedding kept, queries that would settle it, parts, the verdict."""
    if not record.get("loss"):
        return []
    strict = verdict_sentence(record)
    if _explains_itself(record["reason"]) and record["kind"] == "check":  # the headline has the same reason
        strict = ""
    else:
        strict = strict.replace(":", " by the strict definition:", 1)
    found = (kept_sentence(record), needed_sentence(record), parts_sentence(record), strict)
    return [sentence for sentence in found if sentence]


def loss_sentence(record: dict[str, Any]) -> str:
    """Whether at most the accepted loss is lost, such as "At most 1 point lost: yes (95 %)."; empty if not measured."""
    loss = record.get("loss")
    if not loss:
        return ""
    which = f" on {record['which']}" if record.get("which") else ""
    answer = f"{loss['question']}{which}: {loss['answer']}"
    if record["kind"] == "history":
        return f"{answer}, {loss['reason']} ({confidence_level(record)})."
    if _explains_itself(loss["reason"]):
        return f"{answer}: {loss['reason']}."
    return f"{answer} ({confidence_level(record)})."


def kept_sentence(record: dict[str, Any]) -> str:
    """How much of the re-embedded score the stored vectors keep, with its interval; empty if not measured."""
    kept = record.get("kept")
    if not kept or kept["value"] is None:
        return ""
    low, high = (per_cent(kept[end], 1) for end in ("low", "high"))
    interval = f"{confidence_level(record)} interval {low} to {high}"
    return f"Keeps {per_cent(kept['value'], 1)} % of re-embedding ({interval})."


def needed_sentence(record: dict[str, Any]) -> str:
    """How many queries would give an answer, or that more would not; empty if there is an answer."""
    loss = record.get("loss")
    if not loss or loss["answer"] != "not shown" or record["kind"] != "check":
        return ""
    what = "classes of queries" if record["clustered"] else "queries"
    if "too few" in loss["reason"]:
        return ""
    gain = points(record["gain"]["value"])
    if loss["units_needed"] is None:
        return f"More {what} will not settle it: the gain of {gain} points is too near to {points(-loss['max_loss'])}."
    needed = rounded_up(loss["units_needed"])
    return f"About {needed:,} {what} would settle it (now {loss['units']:,}), if the gain stays {gain} points."


def parts_sentence(record: dict[str, Any]) -> str:
    """The answers for known and for new classes, and which of them decides; empty if not checked separately."""
    parts = {which: part for which, part in (record.get("parts") or {}).items() if part.get("loss")}
    if not parts or not record.get("which"):
        return ""
    others = [
        f"{which}: {part['loss']['answer']}, gain {gain_with_interval(part['gain'])} points"
        for which, part in parts.items()
        if which != record["which"] and part.get("gain")
    ]
    return f"{OLD_INDEX} {'; '.join(others).capitalize()}." if others else OLD_INDEX


OLD_INDEX = "Known classes decide: an old index holds no items of new classes."


def rounded_up(count: int) -> int:
    """The number with two significant digits, rounded up.

    >>> rounded_up(1234), rounded_up(57), rounded_up(100)
    (1300, 57, 100)
    """
    unit = 10 ** max(0, len(str(count)) - 2)
    return -(-count // unit) * unit


def _explains_itself(reason: str) -> bool:
    """Whether the reason is not about the interval of the gain: too few queries, or unrelated spaces."""
    return "unrelated" in reason or "too few" in reason


def verdict_sentence(record: dict[str, Any]) -> str:
    """The verdict in a sentence."""
    verdict = str(record["verdict"]).capitalize()
    if record["kind"] == "history" or record["verdict"] == "could not be judged" or not record.get("gain"):
        return f"{verdict}: {record['reason']}."
    if _explains_itself(record["reason"]):
        return f"{verdict}: {record['reason']}."
    goal, worse = _goal(agreement=bool(record.get("agreement")))
    queries = "the new model's bridged queries" if record.get("bridged") else "the new model's queries"
    told = "the new model's bridged ones" if record.get("bridged") else "the new model's"
    return {
        "compatible": f"{verdict}: on the unchanged old gallery, {queries} {goal}.",
        "not shown": f"{verdict}: these queries do not tell whether, on the old gallery, {told} {goal}.",
        "incompatible": f"{verdict}: on the old gallery, {queries} {worse}.",
    }[record["verdict"]]


def gain_sentence(record: dict[str, Any]) -> str:
    """Self-test, cross-test and gain with its interval; empty if the record has no gain."""
    gain = record.get("gain")
    if not gain:
        return ""
    return (
        f"{record['score']} goes from {per_cent(record['self_test']['value'])} % to "
        f"{per_cent(record['cross_test']['value'])} %: {points(gain['value'])} points, "
        f"{confidence_level(record)} interval {points(gain['low'])} to {points(gain['high'])}."
    )


def test_rows(record: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """(name, estimate) of each test that was measured."""
    crossing = "bridged new queries" if record.get("bridged") else "new queries"
    plain = (record.get("without_bridge") or {}).get("cross_test")
    rows = [
        ("old queries, old gallery (self-test)", record.get("self_test")),
        (f"{crossing}, old gallery (cross-test)", record.get("cross_test")),
        ("the same without the bridge", plain),
        ("new queries, new gallery (ceiling)", record.get("new_self_test")),
    ]
    return [(name, found) for name, found in rows if found]


_GAIN = "gain, points"


def score_table(record: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table of scores, in per cent with their intervals; no rows if nothing was measured."""
    mixed = record["kind"] == "mixed"
    rows = [
        [name, per_cent(found["value"]), f"{per_cent(found['low'])} to {per_cent(found['high'])}"]
        for name, found in (score_rows if mixed else test_rows)(record)
    ]
    if gain := record.get("gain"):
        rows.append([_GAIN, points(gain["value"]), f"{points(gain['low'])} to {points(gain['high'])}"])
    what = "" if mixed else f"{record['score']}, {record['protocol']} protocol"
    return [what, "%", f"{confidence_level(record)} interval"], rows


def class_table(record: dict[str, Any], most: int) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of the table of up to ``most`` classes that lose queries, the worst first."""
    rows = [
        [str(entry["class"]), str(entry["queries"]), per_cent(entry["old"]), per_cent(entry["new"])]
        for entry in losing_classes(record, most)
    ]
    return ["classes that lose most", "queries", "old %", "new %"], rows


def evidence_sentences(record: dict[str, Any]) -> list[str]:
    """Sentences about changed first hits, the bridge, re-embedding, shared hits and the threshold, if measured."""
    parts = (_changed, _bridge, _reindexed, _overlap, _threshold)
    return [sentence for sentence in (part(record) for part in parts) if sentence]


def not_covered(record: dict[str, Any]) -> str:
    """What the intervals do not cover; empty if nothing was measured that has one."""
    return NOT_COVERED if _has_intervals(record) else ""


def _has_intervals(record: dict[str, Any]) -> bool:
    return record["kind"] != "check" or bool(record.get("gain") or test_rows(record))


def basis_sentence(record: dict[str, Any]) -> str:
    """The sentence that says how many queries and items were compared, and how."""
    if record["kind"] == "mixed":
        return _mixed_basis(record)
    drawn = "classes of queries" if record["clustered"] else "queries"
    classes = f" of {counted(record['classes'], 'class')}" if record.get("classes") else ""
    itself = " (every query is one of them and does not find itself)" if record.get("leave_one_out") else ""
    bootstrap = f"; paired bootstrap over {drawn}" if _has_intervals(record) else ""
    return (
        f"{counted(record['queries'], 'query')}{classes}, {counted(record['gallery'], 'gallery item')}{itself}, "
        f"{record['protocol']} protocol{bootstrap}."
    )


def lost_query(entry: dict[str, Any]) -> str:
    """One query that was right with the old model and is wrong with the new one."""
    found = "nothing" if entry["new_hit"] is None else entry["new_hit"]
    if "class" not in entry:
        return f"query {entry['query']}: found {entry['old_hit']}, now {found}"
    if entry["taken_for"] == entry["new_hit"]:  # the template protocol: a hit is a class
        return f"query {entry['query']} (class {entry['class']}): now {found}"
    return f"query {entry['query']} (class {entry['class']}): now {found} (class {entry['taken_for']})"


def losing_classes(record: dict[str, Any], most: int) -> list[dict[str, Any]]:
    """Up to ``most`` classes that lose queries, the worst first."""
    known = [entry for entry in record["by_class"] if (entry["change_in_queries"] or 0) < 0]
    return known[:most]


def _goal(*, agreement: bool) -> tuple[str, str]:
    """The goal that the new queries must reach, and the words for missing it.

    agreement: whether the score is agreement with a full re-embedding.
    """
    do, than = (
        ("agree", "with a full re-embedding than the old model's") if agreement else ("do", "than the old model's")
    )
    return f"{do} better {than}", f"{do} worse {than}"


def _changed(record: dict[str, Any]) -> str:
    changes = record.get("changes")
    if not changes:
        return ""
    p = changes["p_value"]
    were = "was right and becomes" if changes["lost"] == 1 else "were right and become"
    return (
        f"First hits: {counted(changes['lost'], 'query')} {were} wrong, {changes['gained']:,} the other way "
        f"(exact McNemar test: p {'< 0.0001' if p < 0.0001 else f'= {p:.4f}'})."
    )


def _bridge(record: dict[str, Any]) -> str:
    if not record.get("bridged"):
        return ""
    bridge, plain = record.get("bridge"), record.get("without_bridge")
    kind = (
        f"Bridge: {bridge['kind']}, fitted on {counted(bridge['evidence']['pairs'], 'pair')}." if bridge else "Bridged."
    )
    if plain:
        return f"{kind} Without it the gain is {gain_with_interval(plain['gain'])} points."
    return f"{kind} Without it the sizes differ and nothing can be compared." if record.get("gain") else kind


def _reindexed(record: dict[str, Any]) -> str:
    reindex = record.get("reindex")
    if not reindex:
        return ""
    adds, share = reindex["adds"], reindex["share_reached"]
    # Records of earlier versions have the share without an interval; ``kept_sentence`` has both.
    only_share = reindex.get("kept") is not None and not record.get("kept")
    kept = f"The old gallery keeps {per_cent(reindex['kept'], 1)} % of the ceiling. " if only_share else ""
    sentence = (
        f"{kept}Re-embedding the gallery would add {points(adds['value'])} points ({confidence_level(record)} interval "
        f"{points(adds['low'])} to {points(adds['high'])})"
    )
    if share is None:
        return f"{sentence}; the new model on its own gallery is no better than the old one."
    if share < 0:
        return f"{sentence}; without that, nothing of the possible gain is reached."
    return f"{sentence}; {100 * share:.0f} % of the possible gain is reached without it."


def _overlap(record: dict[str, Any]) -> str:
    overlap = record.get("overlap")
    if not overlap:
        return ""
    new = "bridged new" if record.get("bridged") else "new"
    return (
        f"Old and {new} queries share {per_cent(overlap['shared']['value'], 1)} % of their first {overlap['k']} hits, "
        f"and the first hit in {per_cent(overlap['same_first']['value'], 1)} % of searches. Agreement is not accuracy."
    )


def _threshold(record: dict[str, Any]) -> str:
    found = record.get("thresholds")
    if not found:
        return ""
    rates = (
        f"Threshold {found['threshold']:.4f} lets in {per_cent(found['old_far'], 3)} % of wrong pairs with old queries "
        f"and {per_cent(found['new_far'], 3)} % with new ones"
    )
    if found["verdict"] == "holds":
        change = found["far_change"]
        return (
            f"{rates}: no change is shown (interval {points(change['low'], 3)} to {points(change['high'], 3)} points)."
        )
    effect = "it has become laxer" if found["verdict"] == "higher" else "it has become stricter"
    return (
        f"{rates}: {effect}. {found['new_threshold']:.4f} would give the old rate, and accept "
        f"{per_cent(found['new_threshold_tar'], 1)} % of right pairs instead of {per_cent(found['new_tar'], 1)} %."
    )


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


def _mixed_basis(record: dict[str, Any]) -> str:
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
    return f"{decimal(found['value'])} ({decimal(found['low'])}-{decimal(found['high'])})"


_LISTED = 20


def check_markdown(record: dict[str, Any]) -> str:
    """A check as Markdown: verdict, table of tests, evidence; long lists are collapsed."""
    parts = [f"### {plain_markdown(headline(record))}"]
    if record["kind"] == "history":
        parts += [plain_markdown(sentence) for sentence in lead_sentences(record)]
        parts += _history(record)
    elif record["kind"] == "mixed":
        parts += _mixed(record)
    else:
        parts += ["\n".join(f"- {plain_markdown(sentence)}" for sentence in lead_sentences(record))]
        parts += [plain_markdown(gain_sentence(record)), table_markdown(*score_table(record))]
        parts += ["\n".join(f"- {plain_markdown(sentence)}" for sentence in evidence_sentences(record))]
        parts += _folded(record)
    parts += [
        "\n".join(f"- {plain_markdown(note)}" for note in record["notes"]),
        f"<sub>{plain_markdown(f'{basis_sentence(record)} {not_covered(record)}')}</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def refusal_markdown(reason: str) -> str:
    """Markdown for a check that could not be made."""
    return f"### Could not be judged: {plain_markdown(reason)}\n"


def _folded(record: dict[str, Any]) -> list[str]:
    parts = []
    heads, losing = class_table(record, _LISTED)
    if losing:
        parts.append(_details(f"Classes that lose most ({len(losing)} shown)", table_markdown(heads, losing)))
    lost = (record.get("changes") or {}).get("lost_queries", [])
    if lost:
        lines = [f"- {plain_markdown(lost_query(entry))}" for entry in lost[:_LISTED]]
        parts.append(_details(f"Right before, wrong now ({len(lines)} of {len(lost):,} shown)", "\n".join(lines)))
    return parts


def _history(record: dict[str, Any]) -> list[str]:
    marks = {"compatible": "✔", "incompatible": "✘", "not shown": "?", None: ""}
    rows = []
    for t, name in enumerate(record["models"]):
        cells = [
            f"{per_cent(found['value'], 1)} {marks[record['verdicts'][t][k]]}".strip()
            if found
            else ("–" if k < t else "")
            for k, found in enumerate(record["matrix"][t])
        ]
        rows.append([name, *cells])
    matrix = table_markdown(["query model \\ gallery of", *record["models"]], rows)
    summary = ", ".join(
        f"{name} {record[name]['value']:.3f} ({record[name]['low']:.3f} to {record[name]['high']:.3f})"
        for name in ("AC", "AA", "ACA")
        if record[name]["value"] is not None
    )
    key = f"{record['score']} in per cent; ✔ compatible, ✘ incompatible, ? not shown."
    return [matrix, key, f"{summary}, {confidence_level(record)} intervals." if summary else ""]


def _mixed(record: dict[str, Any]) -> list[str]:
    sources = "\n".join(f"- {plain_markdown(sentence)}" for sentence in version_sentences(record))
    return [
        table_markdown(*score_table(record)),
        table_markdown(VERSION_COLUMNS, version_rows(record)),
        EXPOSURE_MEANING,
        sources,
    ]


def table_markdown(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table of text, with numbers from the second column on; empty without rows. The gain is in bold."""
    if not rows:
        return ""
    marks = ["**" if row[0] == _GAIN else "" for row in (heads, *rows)]
    lines = [
        f"| {' | '.join(f'{mark}{plain_markdown(cell)}{mark}' for cell in row)} |"
        for mark, row in zip(marks, (heads, *rows))
    ]
    return "\n".join([lines[0], "|---|" + "--:|" * (len(heads) - 1), *lines[1:]])


def _details(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def plain_markdown(value: object) -> str:
    """Text escaped so that it cannot break a table, start HTML or Markdown, embed an image or mention a user."""
    safe = re.sub(r"([\\`*\[\]|])", r"\\\1", " ".join(str(value).split()))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"(?<!\w)@", "@\u200b", safe)
