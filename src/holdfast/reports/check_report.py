"""A check, a mixed check or a history of checks, as a report.

A record is the ``as_json`` of a CheckResult, HistoryResult or MixedResult: scores in [0, 1], None if not measured.
"""

from typing import Any

from holdfast.core.wording import counted, decimal, per_cent
from holdfast.reports.report import Bar, Listing, Part, Report, Table

TITLES = {
    "check": "Do people find more with the new model on the old gallery?",
    "history": "Do people find more with the newest model on the old galleries?",
    "mixed": "Do people find more in the mixed gallery?",
}
_MOODS = {"yes": "yes", "no": "no"}

NOT_COVERED = (
    "The intervals cover the choice of queries: other queries of the same kind on the same gallery. They do not cover "
    "another training seed, other gallery items or other classes: the same models trained again may get another "
    "verdict."
)


AGREEMENT_MEANING = (
    "Agreement: of the ten items that the new model shows when everything is re-embedded, the share among the first "
    "ten hits. It rewards imitating the new model, also where that finds less than the old one. Give labels, relevance "
    "judgements or known items to learn whether people find more."
)


def check_report(record: dict[str, Any]) -> Report:
    """The report of a check's record (``as_json``)."""
    kind = record["kind"]
    return Report(
        title=TITLES[kind],
        headline=headline(record),
        mood=_MOODS.get(str((record.get("loss") or {}).get("answer")), "open"),
        made_by={"check": "holdfast check", "mixed": "holdfast check-mixed", "history": "holdfast check-history"}[kind],
        lead=[sentence for sentence in (*lead_sentences(record), gain_sentence(record)) if sentence],
        parts=[part for part in {"check": _evidence, "mixed": _versions, "history": _matrix}[kind](record) if part],
        notes=[f"{note}." for note in record["notes"]],
        basis=[sentence for sentence in (basis_sentence(record), not_covered(record)) if sentence],
        details=[sentence for sentence in (_rule(record), *_sources(record)) if sentence],
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
    """The first line: whether it is better than keeping the old model and at most so much is lost, or "not judged"."""
    return answers_sentence(record) or not_judged_sentence(record)


def answers_sentence(record: dict[str, Any]) -> str:
    """Both answers: "Better than keeping the old model: yes. At most 1 point lost: yes (95 %)."; empty without."""
    better, loss = record.get("better"), record.get("loss")
    if not better or not loss:
        return ""
    which = f" on {record['which']}" if record.get("which") else ""
    first = f"{better['question']}{which}: {better['answer']}"
    second = f"{loss['question']}: {loss['answer']}"
    if record["kind"] == "history":
        return f"{first}, {better['reason']}. {second}, {loss['reason']} ({confidence_level(record)})."
    if explains_itself(loss["reason"]):
        return f"{first}. {second}: {loss['reason']}."
    return f"{first}. {second} ({confidence_level(record)})."


def not_judged_sentence(record: dict[str, Any]) -> str:
    """Why nothing was judged, after the answer of a gate that was asked for."""
    gate = gate_sentence(record)
    return " ".join(part for part in (gate, f"Not judged: {record['reason']}.") if part)


def gate_sentence(record: dict[str, Any]) -> str:
    """The answer of the gates that were asked for: "Agreement of at least 80 %: reached."; empty without any."""
    if record["kind"] == "mixed":
        return f"Asked for: {record['gates']} ({record['gates_reason']})." if record.get("gates") else ""
    agreement = record.get("agreement") or {}
    if not agreement.get("gate"):
        return ""
    return f"Agreement of at least {100 * agreement['minimum']:g} %: {agreement['gate']}."


def lead_sentences(record: dict[str, Any]) -> list[str]:
    """What follows the headline: gates, share of re-embedding, queries that would settle it, parts."""
    uncertain = f"Uncertain: {record['uncertain']}." if record.get("uncertain") else ""
    found = [uncertain, kept_sentence(record), *needed_sentences(record), parts_sentence(record)]
    if record["kind"] == "mixed" and record.get("better"):
        found.insert(0, gate_sentence(record))
    return [sentence for sentence in found if sentence]


def kept_sentence(record: dict[str, Any]) -> str:
    """How much of the re-embedded score the stored vectors keep, with its interval; empty if not measured."""
    kept = record.get("kept")
    if not kept or kept["value"] is None:
        return ""
    low, high = (per_cent(kept[end], 1) for end in ("low", "high"))
    interval = f"{confidence_level(record)} interval {low} to {high}"
    if record["kind"] == "mixed" and record["agreement"]:
        return f"Shows {per_cent(kept['value'], 1)} % of a re-embedding's first ten items ({interval})."
    return f"Keeps {per_cent(kept['value'], 1)} % of re-embedding ({interval})."


def needed_sentences(record: dict[str, Any]) -> list[str]:
    """For each question without an answer: how many queries would give one, or that more would not."""
    if record["kind"] == "history":
        return []
    answers = [record[name] for name in ("better", "loss") if record.get(name)]
    told = {answer["max_loss"]: needed_sentence(record, answer) for answer in answers}
    return [sentence for sentence in told.values() if sentence]


def needed_sentence(record: dict[str, Any], answer: dict[str, Any]) -> str:
    """How many queries would give this answer, or that more would not; empty if there is an answer."""
    if answer["answer"] != "not shown" or "too few" in answer["reason"]:
        return ""
    what = "groups of queries" if record["clustered"] else "queries"
    gain, about = points(record["gain"]["value"]), f'"{answer["question"]}"'
    if answer["units_needed"] is None:
        return f"More {what} will not settle {about}: the gain of {gain} points is too near to {_bound(answer)}."
    needed = rounded_up(answer["units_needed"])
    return f"About {needed:,} {what} would settle {about} (now {answer['units']:,}), if the gain stays {gain} points."


def _bound(answer: dict[str, Any]) -> str:
    return points(-answer["max_loss"]) if answer["max_loss"] else "0"


def parts_sentence(record: dict[str, Any]) -> str:
    """The answers for known and for new classes, and which of them decides; empty if not checked separately."""
    parts = {which: part for which, part in (record.get("parts") or {}).items() if part.get("loss")}
    if not parts or not record.get("which"):
        return ""
    others = [
        f"{which}: {part['better']['answer']}, gain {gain_with_interval(part['gain'])} points"
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


def explains_itself(reason: str) -> bool:
    """Whether the reason is not about the interval of the gain: too few queries, or unrelated spaces."""
    return "unrelated" in reason or "too few" in reason


def gain_sentence(record: dict[str, Any]) -> str:
    """Self-test, cross-test and gain with its interval; empty if the record has no gain."""
    gain = record.get("gain")
    if not gain or record["kind"] != "check":
        return ""
    return (
        f"{record['score']} goes from {per_cent(record['self_test']['value'])} % to "
        f"{per_cent(record['cross_test']['value'])} %: {points(gain['value'])} points, "
        f"{confidence_level(record)} interval {points(gain['low'])} to {points(gain['high'])}."
    )


def test_rows(record: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """(name, estimate) of each search that was measured; without judgements of its agreement with a re-embedding."""
    if agreement := record.get("agreement"):
        return [(f"{name} model's queries", agreement[name]) for name in ("old", "new")]
    crossing = "new queries through the bridge" if record.get("bridged") else "new queries"
    plain = (record.get("without_bridge") or {}).get("cross_test")
    rows = [
        ("keep the old model", record.get("self_test")),
        (f"{crossing}, old gallery", record.get("cross_test")),
        ("new queries without the bridge", plain),
        ("re-embed everything", record.get("new_self_test")),
    ]
    return [(name, found) for name, found in rows if found]


def score_table(record: dict[str, Any]) -> Table | None:
    """The table of scores, in per cent with their intervals, and of the gain; None if nothing was measured."""
    mixed = record["kind"] == "mixed"
    named = (score_rows if mixed else test_rows)(record)
    rows = [
        [name, per_cent(found["value"]), f"{per_cent(found['low'])} to {per_cent(found['high'])}"]
        for name, found in named
    ]
    ends = [_end(found, which) for _, found in named for which in ("low", "high")] or [0.0]
    axis = min(ends), max(ends)
    bars = [_bar(found, axis) for _, found in named]
    if gain := record.get("gain"):
        rows.append(
            ["gain over keeping, points", points(gain["value"]), f"{points(gain['low'])} to {points(gain['high'])}"]
        )
        bound = -record["loss"]["max_loss"]
        ends = [_end(gain, "low"), _end(gain, "high"), bound, 0.0]
        bars.append(_bar(gain, (min(ends), max(ends)), bound))
    if not rows:
        return None
    heads = ["" if mixed else score_name(record), "%", f"{confidence_level(record)} interval"]
    return Table(heads, rows, [len(rows) - 1] if gain else [], bars)


def _end(found: dict[str, Any], which: str) -> float:
    """An end of an interval; the value where it is not bounded."""
    end = found[which] if found[which] is not None else found["value"]
    return 0.0 if end is None else float(end)


def _bar(found: dict[str, Any], ends: tuple[float, float], bound: float | None = None) -> Bar | None:
    if found["value"] is None or ends[1] <= ends[0]:
        return None
    return Bar.of(_end(found, "low"), found["value"], _end(found, "high"), ends, bound)


def score_name(record: dict[str, Any]) -> str:
    """What the numbers of a check are."""
    if record["score"] is None:
        return "of a re-embedding's first ten items"
    return str(record["score"]) if record["protocol"] == "instance" else f"{record['score']}, template protocol"


def _evidence(record: dict[str, Any]) -> list[Part | None]:
    """The scores, and what changes for single queries and classes."""
    lost = [lost_query(entry) for entry in (record.get("changes") or {}).get("lost_queries", [])]
    classes = losing_classes(record)
    rows = [
        [str(entry["class"]), str(entry["queries"]), per_cent(entry["old"]), per_cent(entry["new"])]
        for entry in classes
    ]
    heads, title = ["classes that lose most", "queries", "old %", "new %"], f"Classes that lose most ({len(rows)})"
    chance = record.get("chance")
    return [
        score_table(record),
        "" if chance is None else f"A random ranking would get {per_cent(chance)} %.",
        *evidence_sentences(record),
        Listing("Queries that score lower, those that lose most first", lost) if lost else None,
        Table(heads, rows, folded=title) if rows else None,
    ]


def _versions(record: dict[str, Any]) -> list[Part | None]:
    table = Table(VERSION_COLUMNS, version_rows(record))
    return [score_table(record), table, EXPOSURE_MEANING, *version_sentences(record)]


_MARKS = {"better": "+", "worse": "-", "not shown": "?", None: " "}
_KINDS = {"better": "better", "worse": "worse", "not shown": "unsure", None: "self"}


def _matrix(record: dict[str, Any]) -> list[Part | None]:
    """The score of each query model (rows) on each gallery (columns), AC, AA and ACA, and what is not decided."""
    models, rows, kinds = record["models"], [], []
    for t, name in enumerate(models):
        cells = []
        for k, found in enumerate(record["matrix"][t]):
            value = "–  " if k < t else ""
            cells.append(value if not found else f"{per_cent(found['value'], 1)} {_MARKS[record['verdicts'][t][k]]}")
        rows.append([name, *cells])
        verdicts = record["verdicts"][t]
        known = [found is not None for found in record["matrix"][t]]
        kinds.append(["", *(_KINDS[verdicts[k]] if k <= t and known[k] else "" for k in range(len(models)))])
    decided = [verdict for row in record["verdicts"] for verdict in row if verdict]
    summary = ", ".join(f"{name} {decimal(record[name], 3)}" for name in ("AC", "AA", "ACA"))
    undecided = [
        f"model {cell['query_model']} on gallery {cell['gallery_model']}: {gain_with_interval(cell['gain'])} points"
        for cell in record["uncertain"]
    ]
    too_wide = f"{len(models)} models are too many for a table here: --page FILE.html and --json give all cells."
    return [
        Table(["query model", *models], rows, kinds=kinds, narrow=too_wide),
        f"{record['score']}, %, on the gallery of each model (columns). + better than keeping, ? not shown, - worse, "
        "– cannot be compared.",
        f"{summary}.",
        ", ".join(f"{decided.count(name)} {name}" for name in ("better", "not shown", "worse"))
        + "; each with an interval of its own, so among many some are wrong by chance.",
        Listing("Not decided", undecided) if undecided else None,
    ]


def _sources(record: dict[str, Any]) -> list[str]:
    return [f"{name.replace('_', ' ').capitalize()}: {file}." for name, file in (record.get("sources") or {}).items()]


def _rule(record: dict[str, Any]) -> str:
    gates = f" {mixed_rule(record)}" if record["kind"] == "mixed" else ""
    if not record.get("loss"):
        return gates.strip()
    level, question = confidence_level(record), record["loss"]["question"].lower()
    return (
        f"{record['better']['question']} is answered yes if the whole {level} interval of the gain is above 0, no if "
        f"it is below, otherwise not shown; {question} likewise at {_bound(record['loss'])} points. The gain compares "
        f"the same queries; keeping the old model is the old model's queries on its own vectors.{gates}"
    )


def evidence_sentences(record: dict[str, Any]) -> list[str]:
    """Sentences about changed queries, the bridge, re-embedding, and shared hits, if measured."""
    parts = (_changed, _bridge, _reindexed, _agreement, _overlap)
    return [sentence for sentence in (part(record) for part in parts) if sentence]


def not_covered(record: dict[str, Any]) -> str:
    """What the intervals do not cover; empty if nothing was measured that has one."""
    return NOT_COVERED if _has_intervals(record) else ""


def _has_intervals(record: dict[str, Any]) -> bool:
    return record["kind"] != "check" or bool(test_rows(record))


def basis_sentence(record: dict[str, Any]) -> str:
    """The sentence that says how many queries and items were compared, and how."""
    if record["kind"] == "mixed":
        return _mixed_basis(record)
    classes = f" of {counted(record['classes'], 'class')}" if record.get("classes") else ""
    itself = ""
    if record.get("stored_queries"):
        itself = f" ({counted(record['stored_queries'], 'query')} of these do not find themselves)"
    intervals = f"; {_interval_basis(record)}" if _has_intervals(record) else ""
    return (
        f"{counted(record['queries'], 'query')}{classes}, {counted(record['gallery'], 'gallery item')}{itself}, "
        f"{record['protocol']} protocol{intervals}."
    )


def _interval_basis(record: dict[str, Any]) -> str:
    """What the intervals rest on: queries, those that repeat counted once, or groups of them."""
    if record["clustered"]:
        return "intervals by groups of queries that gain and lose together"
    if record.get("distinct") is not None and record["distinct"] < record["queries"]:
        return f"intervals by {counted(record['distinct'], 'query')} that differ"
    return "intervals by queries"


def lost_query(entry: dict[str, Any]) -> str:
    """One query that scores lower with the new model."""
    found = "nothing" if entry["new_hit"] is None else entry["new_hit"]
    before, after = entry["old_score"], entry["new_score"]
    change = "" if (before, after) == (1, 0) else f", {per_cent(before, 1)} to {per_cent(after, 1)} %"
    if "class" not in entry:
        return f"query {entry['query']}: found {entry['old_hit']}, now {found}{change}"
    taken = "" if entry["taken_for"] == entry["new_hit"] else f" (class {entry['taken_for']})"  # a hit may be a class
    return f"query {entry['query']} (class {entry['class']}): now {found}{taken}{change}"


def losing_classes(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The classes that lose queries, the worst first."""
    return [entry for entry in record["by_class"] if (entry["change_in_queries"] or 0) < 0]


def _changed(record: dict[str, Any]) -> str:
    changes = record.get("changes")
    if not changes:
        return ""
    p, scores = changes["p_value"], "scores" if changes["lost"] == 1 else "score"
    return (
        f"{counted(changes['lost'], 'query').capitalize()} {scores} lower and {changes['gained']:,} higher "
        f"(sign test: p {'< 0.0001' if p < 0.0001 else f'= {p:.4f}'})."
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


def _agreement(record: dict[str, Any]) -> str:
    return AGREEMENT_MEANING if record.get("agreement") else ""


def _reindexed(record: dict[str, Any]) -> str:
    reindex = record.get("reindex")
    if not reindex:
        return ""
    adds, share = reindex["adds"], reindex["share_reached"]
    sentence = (
        f"Re-embedding the gallery would add {points(adds['value'])} points ({confidence_level(record)} interval "
        f"{points(adds['low'])} to {points(adds['high'])})"
    )
    if share is None:
        return f"{sentence}; the new model on its own gallery finds no more than the old one."
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
        f"and the first hit in {per_cent(overlap['same_first']['value'], 1)} % of searches. This does not say which of "
        "them find more."
    )


EXPOSURE_MEANING = (
    "Exposure: the share of the first places (1 or 10) that a version's items take, divided by the share that the same "
    "items take when everything is re-embedded; 1 is fair. Recall: the share of a version's right items (at most ten) "
    "among the first ten hits, and the same when everything is re-embedded. Raw: without bridges and scales."
)


def score_rows(record: dict[str, Any]) -> list[tuple[str, dict[str, float]]]:
    """(name, estimate) of each score of a mixed gallery and of the share of a re-embedding."""
    score = "share of a re-embedding's hits" if record["agreement"] else record["score"]
    rows = [
        (f"{score}, keep the old model", record["keep"]),
        (f"{score}, mixed gallery", record["accuracy"]),
        (f"{score}, without bridges and scales", record["raw_accuracy"]),
    ]
    if not record["agreement"]:
        rows += [
            (f"{score}, re-embed everything", record["reembedded"]),
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
    classes = f" of {counted(record['classes'], 'class')}" if record["classes"] else ""
    return (
        f"{counted(record['queries'], 'query')}{classes}, {counted(record['gallery'], 'gallery item')} of "
        f"{counted(len(record['versions']), 'version')}; {100 * record['confidence']:g} % {_interval_basis(record)}."
    )


def mixed_rule(record: dict[str, Any]) -> str:
    """How gates are answered."""
    names = (("every exposure", "min_exposure"), ("agreement", "min_agreement"))
    asked = [f"{name} at least {record[key]:g}" for name, key in names if record[key] is not None]
    if not asked:
        return "No smallest exposure or agreement was asked for."
    return (
        f"Asked for: {', '.join(asked)}. That is reached if all intervals lie at or above these values, missed if one "
        "lies below, otherwise not shown."
    )


def _ratio(found: dict[str, float] | None) -> str:
    if not found or found["value"] is None:
        return "–"
    return f"{decimal(found['value'])} ({decimal(found['low'])}-{decimal(found['high'])})"
