"""``holdfast bridge``: fit a map between two models' spaces, export one, or convert an index by one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import ID_OPTION, JSON_OPTION, VECTOR_OPTION
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, decimal, per_cent, with_options

if TYPE_CHECKING:
    from holdfast.bridges import Bridge, IndexMap, Pairs
    from holdfast.checks.judged_maps import JudgedMaps

HELPS, WORSE, NOT_SHOWN = "helps", "worse than keeping", "not shown"
PROVISIONAL, UNCONNECTED = "provisional", "models not connected"
_EXIT_CODES = {HELPS: 0, WORSE: 1, NOT_SHOWN: 1, PROVISIONAL: 3, UNCONNECTED: 1}
_UNWRITTEN = (WORSE, UNCONNECTED)
INDEX = "index"
"""The kind that maps stored vectors, and not queries."""
FEW_PAIRS = 200
"""With fewer pairs the output warns."""

JUDGED = "Judged on unseen items of the classes in these files; classes that are in neither file may do worse."


def bridge(
    folder: Path | None = typer.Argument(
        None, metavar="BRIDGE", help="A bridge to export, or one of kind index to convert --old by."
    ),
    old: Path | None = typer.Option(None, "--old", help="Vectors of the old model, in the files that check takes."),
    new: Path | None = typer.Option(None, "--new", help="Vectors of the new model of some of the same items."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Real queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    relevance: Path | None = typer.Option(
        None, "--relevance", help="Which items are right for these queries; else the labels in the files say it."
    ),
    out: Path | None = typer.Option(
        None, "--out", help="Folder for the bridge, an existing one is replaced; with BRIDGE, the file to write."
    ),
    kind: str = typer.Option(
        "auto", "--kind", help="auto, none, rotation, affine or local; or index, a map of the stored vectors."
    ),
    pairs: int | None = typer.Option(None, "--pairs", help="At most so many pairs, at random.", show_default="all"),
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Fit a bridge: new queries search an old model's stored vectors.

    No stored vector changes. The bridge is fitted on pairs: stored items, queries of a log, or any texts or images that
    both models embedded, matched by id as in check (row by row without ids). Use 1,000 or more. Whether people then
    find more than with the old model is judged on real queries with --relevance or labels. Queries without judgements
    are fitted on together with the pairs.

    With --kind index the stored vectors are mapped instead, to a copy in the new model's space: holdfast bridge BRIDGE
    --old INDEX --out CONVERTED.npz. BRIDGE --out FILE.npz or FILE.onnx exports a bridge of queries.

    Exit status: 0 written, and shown to find more than keeping the old model, 1 not shown to (written) or worse (not
    written), 2 bad input, 3 written, but not judged.

    Example: holdfast bridge --old index.npz --new sample.npz --out bridges/2-to-1
    """
    with exit_on_failure("bridge", json=json):
        if out is None:
            raise HoldfastError("--out is needed: the folder for the bridge, or with BRIDGE the file to write")
        if folder is not None:
            if any(given is not None for given in (new, pairs, queries_old, queries_new, relevance)) or kind != "auto":
                raise HoldfastError("BRIDGE exists: with it give --out FILE, and --old INDEX to convert an index by it")
            written = _written(folder, old, out, (id_, vector))
            print_json(written) if json else say(written["text"])
            return
        from holdfast.bridges.bridge import BRIDGE_FILES
        from holdfast.bridges.index_side import INDEX_MAP_FILES
        from holdfast.core.storage import check_replaceable

        check_replaceable(out, INDEX_MAP_FILES if kind == INDEX else BRIDGE_FILES)
        asked = _AskedQueries(queries_old, queries_new, relevance, (id_, vector))
        found, queries = asked.joined(_read(old, new, pairs, (id_, vector)))
        fitted = _fit(found, queries, kind)
        name = with_options(fitted.kind, fitted.options)
        judged = asked.judge(old, fitted, found) if fitted.agrees_beyond_chance else None
        verdict = _verdict(judged, name) if fitted.agrees_beyond_chance else UNCONNECTED
        if verdict not in _UNWRITTEN:
            fitted.save(out)
        record = {
            "verdict": verdict,
            "reason": _reason(fitted),
            "exit_code": _EXIT_CODES[verdict],
            "folder": None if verdict in _UNWRITTEN else str(out),
            "against_keeping": _against_keeping(judged, name),
            "more_pairs": _more_pairs(fitted),
            "found": found.found,
            "only_old": found.only_old,
            "only_new": found.only_new,
            "queries_fitted": queries,
            "judged": JUDGED,
            **fitted.as_json(),
        }
        if json:
            print_json(record)
        else:
            _print(fitted, found, record, judged)
    raise typer.Exit(_EXIT_CODES[verdict])


def _written(folder: Path, old: Path | None, file: Path, columns: tuple[str | None, ...]) -> dict[str, Any]:
    """Export a bridge, or convert an index by one of kind index."""
    from holdfast.bridges import Bridge, IndexMap, export_bridge
    from holdfast.bridges.index_side import INDEX_MAP_FILES, convert_index
    from holdfast.vectors.feature_files import read_features, write_features
    from holdfast.vectors.vector_tables import Columns

    if not (folder / INDEX_MAP_FILES[0]).is_file():
        if old is not None:
            raise HoldfastError(f"{folder}: --old is converted by a bridge of kind index only; fit one by --kind index")
        export_bridge(Bridge.load(folder), file)
        return {"bridge": str(folder), "file": str(file), "text": f"{file}: {file.stat().st_size:,} bytes"}
    if old is None:
        raise HoldfastError(f"{folder}: a bridge of kind index; name the index that it converts: --old INDEX")
    index_map = IndexMap.load(folder)
    converted = convert_index(index_map, read_features(old, "gallery", Columns(*columns)))
    write_features(file, converted)
    scale = index_map.scale
    text = (
        f"{file}: {counted(len(converted), 'vector')} of {converted.dim} numbers, {converted.model}. Rank its hits "
        f"beside the new model's own by {scale.offset:.4f} + {scale.slope:.4f} * cosine."
    )
    return {"bridge": str(folder), "file": str(file), "derived": True, "scale": scale.as_json(), "text": text}


def _fit(pairs: "Pairs", queries: int, kind: str) -> "Bridge | IndexMap":
    import numpy as np

    from holdfast.bridges import Bridge, IndexMap

    if kind == INDEX:
        return IndexMap.fit(new=pairs.new, old=pairs.old, models=pairs.models)
    # A file that holds nothing but the pairs is a sample of a larger gallery: else everything would be re-embedded.
    rows = pairs.found + pairs.only_old
    return Bridge.fit(
        new=pairs.new,
        old=pairs.old,
        kind=kind,
        labels=pairs.labels,
        items=rows if rows > len(pairs) - queries else None,
        queries=np.arange(len(pairs)) >= len(pairs) - queries,
        models=pairs.models,
    )


class _AskedQueries:
    """Real queries. They judge the bridge if it is known what they should find; else it is fitted on them too.

    columns: the values of --id and --vector.
    """

    def __init__(
        self, old: Path | None, new: Path | None, relevance: Path | None, columns: tuple[str | None, ...]
    ) -> None:
        from holdfast.vectors.feature_files import read_features
        from holdfast.vectors.vector_tables import Columns

        if (old is None) != (new is None):
            raise HoldfastError("--queries-old and --queries-new go together: the same queries embedded by both models")
        if relevance is not None and old is None:
            raise HoldfastError(
                "--relevance names the right items of queries: give --queries-old and --queries-new too"
            )
        self._columns, self._relevance = Columns(*columns), relevance
        self._sets = [read_features(file, "query", self._columns) for file in (old, new) if file is not None]

    @property
    def judged(self) -> bool:
        return bool(self._sets) and (
            self._relevance is not None or all(queries.labels is not None for queries in self._sets)
        )

    def joined(self, pairs: "Pairs") -> "tuple[Pairs, int]":
        """The pairs, with the queries at the end if nothing is known of what these should find; and their number."""
        from dataclasses import replace

        import numpy as np

        from holdfast.bridges import read_pairs

        if not self._sets or self.judged:
            return pairs, 0
        queries = read_pairs(self._sets[0], self._sets[1], with_labels=False)
        labels = None if pairs.labels is None else np.append(pairs.labels.astype(object), [None] * len(queries))
        new, old = (np.concatenate(parts) for parts in ((pairs.new, queries.new), (pairs.old, queries.old)))
        return replace(pairs, new=new, old=old, labels=labels), len(queries)

    def judge(self, old: Path | None, fitted: "Bridge | IndexMap", pairs: "Pairs") -> "JudgedMaps | None":
        """What the queries find with the old model and by each candidate; None if that cannot be judged."""
        if not self.judged or old is None:
            return None
        from holdfast.bridges import Bridge
        from holdfast.checks.judged_maps import judge_maps
        from holdfast.vectors.feature_files import read_features

        index, maps = read_features(old, "gallery", self._columns), {with_options(fitted.kind, fitted.options): fitted}
        (queries_old, queries_new), is_bridge = self._sets, isinstance(fitted, Bridge)
        query_maps, index_maps = (_candidate_maps(fitted, pairs), {}) if is_bridge else ({}, maps)
        return judge_maps(index, queries_old, queries_new, query_maps, index_maps, relevance=self._relevance)


def _candidate_maps(bridge: Any, pairs: "Pairs") -> dict[str, Any]:
    """Every candidate, fitted on all pairs as the chosen one is."""
    from functools import partial

    from holdfast.bridges.bridge import pairs_of
    from holdfast.bridges.choice import BRIDGES
    from holdfast.bridges.maps import mapped_queries

    maps: dict[str, Any] = {with_options(bridge.kind, bridge.options): bridge}
    new, old = pairs_of(pairs.new, pairs.old)
    shared: dict[Any, Any] = {}
    for candidate in bridge.evidence.candidates[1:]:
        name = with_options(candidate.kind, candidate.options)
        if candidate.kind in BRIDGES:
            map_of_kind = BRIDGES[candidate.kind].fit(new, old, shared, **candidate.options)
            maps[name] = partial(mapped_queries, map_of_kind)
        else:
            maps[name] = lambda queries: queries
    return maps


def _verdict(judged: "JudgedMaps | None", name: str) -> str:
    if judged is None:
        return PROVISIONAL
    gain = judged.gains[name]
    if gain.uncertain is None and gain.low > 0:
        return HELPS
    return WORSE if gain.high < 0 else NOT_SHOWN


def _against_keeping(judged: "JudgedMaps | None", name: str) -> dict[str, Any] | None:
    """What the queries find with the old model and by the map, and the gain, with intervals; plain types."""
    if judged is None:
        return None
    from holdfast.checks.judged_maps import KEEP

    rows = {"keep": judged.values[KEEP], "bridge": judged.values[name], "gain": judged.gains[name]}
    return {
        "score": judged.score,
        "queries": judged.queries,
        "notes": judged.notes,
        "candidates": {row: interval.value for row, interval in judged.values.items()},
        **{key: {"value": part.value, "low": part.low, "high": part.high} for key, part in rows.items()},
    }


def _more_pairs(fitted: "Bridge | IndexMap") -> str:
    """Whether more pairs would help, in words."""
    evidence = fitted.evidence
    if fitted.kind == INDEX:
        return "Would more pairs help? Usually: a map of stored vectors gains more from them than one of queries."
    if len(evidence.curve) < 2 or evidence.measure == "reciprocal rank":
        return "Would more pairs help? Too few pairs to say; 1,000 or more are usual."
    (before, earlier), (last, value) = evidence.curve[-2:]
    gain = value - earlier
    what = f"from {before:,} to {last:,} fitted pairs the agreement"
    if gain > max(0.01, evidence.chosen.error):
        return f"Would more pairs help? Yes: {what} rose by {per_cent(gain, 1)} points."
    return f"Would more pairs help? Hardly: {what} changed by {per_cent(gain, 1)} points."


def _read(old: Path | None, new: Path | None, most: int | None, columns: tuple[str | None, ...]) -> "Pairs":
    from holdfast.bridges import read_pairs
    from holdfast.vectors.feature_files import read_features
    from holdfast.vectors.vector_tables import Columns

    if old is None or new is None:
        raise HoldfastError("give --old FILE and --new FILE; holdfast embed writes such files")
    if most is not None and most < 1:
        raise HoldfastError(f"--pairs {most}: at least 1 is needed")
    before, after = (read_features(file, "gallery", Columns(*columns)) for file in (old, new))
    return read_pairs(before, after, most=most)


_VALUES = {
    "overlap@10": "{} % of the ten items that a full re-embedding shows",
    "top1": "a first hit of the right class for {} % of the queries",
    "reciprocal rank": "an item's own stored vector with a mean reciprocal rank of {} %",
}


_SEARCHES = {"none": "queries as they are show", INDEX: "new queries on the converted index show"}


def _reason(fitted: "Bridge | IndexMap") -> str:
    """What was measured on held-out pairs, in a sentence without its full stop."""
    evidence, plain = fitted.evidence, fitted.evidence.without
    shown = _VALUES[evidence.measure].format(per_cent(evidence.chosen.value, 1))
    sentence = f"{_SEARCHES.get(fitted.kind, 'bridged queries show')} {shown}"
    if plain is not None and fitted.kind != "none":
        sentence += f", without the bridge {per_cent(plain.value, 1)} %"
    sentence += f", random hits {per_cent(evidence.chance, 1)} %"
    if not fitted.agrees_beyond_chance:
        sentence += "; among items that the map was not fitted on, it is not clearly above chance"
    return sentence


def _print(fitted: "Bridge | IndexMap", pairs: "Pairs", record: dict[str, Any], judged: "JudgedMaps | None") -> None:
    verdict, against = record["verdict"], record["against_keeping"]
    used = "new queries on the converted index" if fitted.kind == INDEX else "bridged queries"
    starts = {
        HELPS: f"The bridge helps: {used} find more than the old model",
        WORSE: f"Keep the old model: it finds more than {used}",
        NOT_SHOWN: "Not shown to find more than keeping the old model",
        PROVISIONAL: "Provisional: whether people find more than with the old model was not judged",
        UNCONNECTED: f"No bridge connects the models: {record['reason']}",
    }
    say(f"{starts[verdict]}.")
    if against is not None:
        gain = against["gain"]
        say(
            f"{against['score']} of {counted(against['queries'], 'query')}: {per_cent(gain['value'])} points over "
            f"keeping, 95 % interval {per_cent(gain['low'])} to {per_cent(gain['high'])}."
        )
    if verdict == PROVISIONAL:
        say("To judge it: --queries-old and --queries-new with --relevance, or with labels in all files.")
    if verdict != UNCONNECTED:
        shared = "No map is needed, the two models share a space" if fitted.kind == "none" else "Agreement"
        say(f"{shared}: {record['reason']}. Agreement with the new model does not say that people find more.")
    if len(pairs) < FEW_PAIRS:
        say(
            f"Only {counted(len(pairs), 'pair')}: expect a bridge that finds much less than the old model "
            "does, and figures that vary by many points; 1,000 or more are usual."
        )
    _print_rows(fitted, judged)
    for note in [] if judged is None else judged.notes:
        say(f"Note: {note}.")
    say(record["more_pairs"])
    say(_basis(pairs, fitted, record["queries_fitted"]))
    say(JUDGED)
    folder = record["folder"]
    kind = with_options(fitted.kind, fitted.options)
    say("Nothing was written." if folder is None else f"{folder}: written, kind {kind}.")
    if folder is not None and fitted.kind == INDEX:
        say(f"holdfast bridge {folder} --old INDEX --out CONVERTED.npz converts an index by it.")


def _print_rows(fitted: "Bridge | IndexMap", judged: "JudgedMaps | None") -> None:
    """The old model and the candidates: what people find with them, if that is known, and how far they agree."""
    evidence, keep = fitted.evidence, "keep the old model"

    def score(name: str) -> list[str]:
        return [] if judged is None else [per_cent(judged.values[name].value, 1)]

    rows = [[keep, *score(keep), "not measured" if judged is None else "–", "–", "–", "–"]]
    for place, candidate in enumerate(evidence.candidates):
        name = with_options(candidate.kind, candidate.options)
        exposure = [decimal(candidate.exposure.get(k)) for k in (1, 10)]
        agreement = [per_cent(candidate.value, 1), per_cent(candidate.nearest, 1), *exposure]
        rows.append([name + ("" if place else " *"), *score(name), *agreement])
    scores = [] if judged is None else [f"{judged.score} %"]
    header = ["", *scores, f"{evidence.measure} %", "nearest %", "exposure@1", "@10"]
    print_table(header, rows, right=tuple(range(1, len(header))))
    say(
        "*: chosen, by the first of these that is clear: nearest (the mean reciprocal rank of the item that the new "
        f"model puts first), {evidence.measure}, the simplest. exposure: how often old items are expected among the "
        "first places of a gallery embedded half by each model, relative to a full re-embedding; 1 is fair."
    )


def _basis(pairs: "Pairs", fitted: "Bridge | IndexMap", queries: int) -> str:
    items = len(pairs) - queries
    used = f"{items:,} of {pairs.found:,} pairs" if items < pairs.found else counted(items, "pair")
    left = [
        f"{count:,} only in the {which} set"
        for which, count in (("old", pairs.only_old), ("new", pairs.only_new))
        if count
    ]
    others = f" (left out: {', '.join(left)})" if left else ""
    joined = f" and {counted(queries, 'query')}" if queries else ""
    way = "left out in turn" if fitted.kind == INDEX else "held out"
    held = f"; {fitted.evidence.held_out:,} of them were {way} to measure the candidates"
    return f"{used}{others}{joined}{held}."
