"""``holdfast bridge``: fit a map from a new model's queries to an old model's space, or export one."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import ID_OPTION, JSON_OPTION, LABEL_OPTION, VECTOR_OPTION
from holdfast.cli.show import print_json, print_table, say
from holdfast.cli.verdict_exit import exit_on_failure
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, decimal, per_cent, with_options

if TYPE_CHECKING:
    from holdfast.bridges import Bridge, Candidate, Pairs
    from holdfast.checks import CheckResult

HELPS, WORSE, NOT_SHOWN = "helps", "worse than keeping", "not shown"
PROVISIONAL, NO_BRIDGE = "provisional", "no bridge helps"
_EXIT_CODES = {HELPS: 0, WORSE: 1, NOT_SHOWN: 1, PROVISIONAL: 3, NO_BRIDGE: 1}
_BY_CHECK = {"better": HELPS, "worse": WORSE, "not shown": NOT_SHOWN, "not judged": PROVISIONAL}
_UNWRITTEN = (WORSE, NO_BRIDGE)
FEW_PAIRS = 200
"""With fewer pairs the output warns."""

JUDGED = "Judged on unseen items of the classes in these files; classes that are in neither file may do worse."


def bridge(
    folder: Path | None = typer.Argument(None, metavar="BRIDGE", help="A bridge to --export."),
    old: Path | None = typer.Option(None, "--old", help="Vectors of the old model, in the files that check takes."),
    new: Path | None = typer.Option(None, "--new", help="Vectors of the new model of some of the same items."),
    queries_old: Path | None = typer.Option(None, "--queries-old", help="Real queries embedded by the old model."),
    queries_new: Path | None = typer.Option(None, "--queries-new", help="The same queries by the new model."),
    relevance: Path | None = typer.Option(
        None, "--relevance", help="Which items are right for these queries; else the labels in the files say it."
    ),
    out: Path | None = typer.Option(None, "--out", help="Folder for the bridge; an existing bridge is replaced."),
    kind: str = typer.Option("auto", "--kind", help="auto, none, rotation, affine or local."),
    pairs: int | None = typer.Option(None, "--pairs", help="At most so many pairs, at random.", show_default="all"),
    items: int | None = typer.Option(
        None, "--items", help="Items in the old gallery; default: the rows of --old, if more than pairs."
    ),
    id_: str | None = ID_OPTION,
    vector: str | None = VECTOR_OPTION,
    label: str | None = LABEL_OPTION,
    no_labels: bool = typer.Option(False, "--no-labels", help="Ignore labels in the files."),
    seed: int = typer.Option(0, "--seed", min=0, help="Seed of the choice and of the split of pairs."),
    export: Path | None = typer.Option(None, "--export", help="Write BRIDGE as FILE.npz or FILE.onnx."),
    json: bool = JSON_OPTION,
) -> None:
    """Fit a bridge: new queries search an old model's stored vectors.

    No stored vector changes. The bridge is fitted on pairs: stored items, queries of a log, or any texts or images that
    both models embedded, matched by id as in check (row by row without ids). Use 1,000 or more. Whether people then
    find more than with the old model is judged on real queries with --relevance or labels. Queries without judgements
    join the pairs.

    Exit status: 0 written, and shown to find more than keeping the old model, 1 not shown to (written) or worse (not
    written), 2 bad input, 3 written, but not judged.

    Example: holdfast bridge --old index.npz --new sample.npz --out bridges/2-to-1
    """
    with exit_on_failure("bridge", json=json):
        if folder is not None or export is not None:
            fit_options = (old, new, out, pairs, items, queries_old, queries_new, relevance)
            if any(given is not None for given in fit_options) or kind != "auto":
                raise HoldfastError("--export writes a bridge that exists: holdfast bridge BRIDGE --export FILE")
            written = _export(folder, export)
            print_json(written) if json else typer.echo(f"{written['file']}: {written['bytes']:,} bytes")
            return
        if out is None:
            raise HoldfastError("--out is needed: the folder for the bridge")
        from holdfast.bridges.bridge import BRIDGE_FILES
        from holdfast.core.storage import check_replaceable

        check_replaceable(out, BRIDGE_FILES)
        asked = _Queries(queries_old, queries_new, relevance, (id_, vector, label), seed)
        found = asked.joined(_read(old, new, pairs, columns=(id_, vector, label), with_labels=not no_labels, seed=seed))
        fitted = _fit(found, kind, items, seed)
        judged = asked.judge(old, fitted) if fitted.helps else None
        verdict = NO_BRIDGE if not fitted.helps else PROVISIONAL if judged is None else _BY_CHECK[judged.verdict]
        if verdict not in _UNWRITTEN:
            fitted.save(out)
        record = {
            "verdict": verdict,
            "reason": _reason(fitted, verdict),
            "exit_code": _EXIT_CODES[verdict],
            "folder": None if verdict in _UNWRITTEN else str(out),
            "against_keeping": _against_keeping(judged),
            "more_pairs": _more_pairs(fitted),
            "found": found.found,
            "only_old": found.only_old,
            "only_new": found.only_new,
            "judged": JUDGED,
            **fitted.as_json(),
        }
        if json:
            print_json(record)
        else:
            _print(fitted, found, record)
    raise typer.Exit(_EXIT_CODES[verdict])


def _export(folder: Path | None, file: Path | None) -> dict[str, Any]:
    from holdfast.bridges import Bridge, export_bridge

    if folder is None or file is None:
        raise HoldfastError("name a bridge and a file: holdfast bridge BRIDGE --export FILE.npz or FILE.onnx")
    export_bridge(Bridge.load(folder), file)
    return {"bridge": str(folder), "file": str(file), "bytes": file.stat().st_size}


def _fit(pairs: "Pairs", kind: str, items: int | None, seed: int) -> "Bridge":
    from holdfast.bridges import Bridge

    if items is not None and items < len(pairs):
        raise HoldfastError(f"--items {items}: fewer than the {len(pairs)} pairs; it is the size of the old gallery")
    # A file that holds nothing but the pairs is a sample of a larger gallery: else everything would be re-embedded.
    rows = pairs.found + pairs.only_old
    size = items if items is not None else rows if rows > len(pairs) else None
    return Bridge.fit(
        new=pairs.new, old=pairs.old, kind=kind, labels=pairs.labels, items=size, models=pairs.models, seed=seed
    )


class _Queries:
    """Real queries. They judge the bridge if it is known what they should find; else they join the pairs.

    columns: the values of --id, --vector and --label. seed: of the intervals.
    """

    def __init__(
        self, old: Path | None, new: Path | None, relevance: Path | None, columns: tuple[str | None, ...], seed: int
    ) -> None:
        from holdfast.vectors.feature_files import read_features
        from holdfast.vectors.vector_tables import Columns

        if (old is None) != (new is None):
            raise HoldfastError("--queries-old and --queries-new go together: the same queries embedded by both models")
        if relevance is not None and old is None:
            raise HoldfastError(
                "--relevance names the right items of queries: give --queries-old and --queries-new too"
            )
        self._columns, self._relevance, self._seed = Columns(*columns), relevance, seed
        names = ((old, "query"), (new, "query"))
        self._sets = [read_features(file, part, self._columns) for file, part in names if file is not None]

    @property
    def judged(self) -> bool:
        return bool(self._sets) and (self._relevance is not None or all(one.labels is not None for one in self._sets))

    def joined(self, pairs: "Pairs") -> "Pairs":
        """The pairs, with the queries if nothing is known of what these should find."""
        from dataclasses import replace

        import numpy as np

        from holdfast.bridges import read_pairs

        if not self._sets or self.judged:
            return pairs
        queries = read_pairs(self._sets[0], self._sets[1], with_labels=False)
        return replace(
            pairs,
            new=np.concatenate([pairs.new, queries.new]),
            old=np.concatenate([pairs.old, queries.old]),
            labels=None,
            found=pairs.found + queries.found,
        )

    def judge(self, old: Path | None, bridge: "Bridge") -> "CheckResult | None":
        """The bridged queries against keeping the old model, on the old index; None if that cannot be judged."""
        from holdfast.checks import check
        from holdfast.vectors.feature_files import read_features

        if not self.judged:
            return None
        if old is None:
            raise HoldfastError(
                "--queries-old and --queries-new are judged on a file of the old index; give --old FILE"
            )
        index = read_features(old, "gallery", self._columns)
        if self._relevance is None and index.labels is None:
            return None
        return check(index, *self._sets, bridge=bridge, relevance=self._relevance)


def _against_keeping(result: "CheckResult | None") -> dict[str, Any] | None:
    """What the queries found with the old model and through the bridge, and the gain, with intervals; plain types."""
    if result is None or result.self_test is None or result.cross_test is None or result.gain is None:
        return None
    rows = {"keep": result.self_test, "bridge": result.cross_test, "gain": result.gain}
    return {
        "score": result.score,
        "queries": result.queries,
        **{name: {"value": one.value, "low": one.low, "high": one.high} for name, one in rows.items()},
    }


def _more_pairs(bridge: "Bridge") -> str:
    """Whether more pairs would help, in words."""
    curve = bridge.evidence.curve
    if len(curve) < 2 or bridge.evidence.measure == "reciprocal rank":
        return "Would more pairs help? Too few pairs to say; 1,000 or more are usual."
    (before, earlier), (last, value) = curve[-2:]
    gain = value - earlier
    rose = f"from {before:,} to {last:,} fitted pairs the agreement rose by {per_cent(gain, 1)} points"
    if gain > max(0.01, bridge.evidence.chosen.error):
        return f"Would more pairs help? Yes: {rose}."
    fell = rose.replace(f"rose by {per_cent(gain, 1)}", f"changed by {per_cent(gain, 1)}")
    return f"Would more pairs help? Hardly: {fell}."


def _read(
    old: Path | None,
    new: Path | None,
    most: int | None,
    *,
    columns: tuple[str | None, str | None, str | None],
    with_labels: bool,
    seed: int,
) -> "Pairs":
    from holdfast.bridges import read_pairs
    from holdfast.vectors.feature_files import read_features
    from holdfast.vectors.vector_tables import Columns

    if old is None or new is None:
        raise HoldfastError("give --old FILE and --new FILE; holdfast embed writes such files")
    if most is not None and most < 1:
        raise HoldfastError(f"--pairs {most}: at least 1 is needed")
    before, after = (read_features(file, "gallery", Columns(*columns)) for file in (old, new))
    return read_pairs(before, after, most=most, with_labels=with_labels, seed=seed)


_VALUES = {
    "overlap@10": "{} % of the ten items that a full re-embedding shows",
    "top1": "a first hit of the right class for {} % of the queries",
    "reciprocal rank": "an item's own stored vector with a mean reciprocal rank of {} %",
}


def _reason(bridge: "Bridge", verdict: str) -> str:
    """What was measured on held-out pairs, in a sentence without its full stop."""
    evidence = bridge.evidence
    shown = _VALUES[evidence.measure]
    queries = "queries as they are show" if bridge.kind == "none" else "bridged queries show"
    sentence = f"{queries} {shown.format(per_cent(evidence.chosen.value, 1))}"
    plain = evidence.without
    if plain is not None and bridge.kind != "none":
        sentence += f", without the bridge {per_cent(plain.value, 1)} %"
    sentence += f", random hits {per_cent(evidence.chance, 1)} %"
    if verdict == NO_BRIDGE:
        sentence += "; among items that the map was not fitted on, it is not clearly above chance"
    return sentence


def _print(bridge: "Bridge", pairs: "Pairs", record: dict[str, Any]) -> None:
    verdict, against = record["verdict"], record["against_keeping"]
    starts = {
        HELPS: "The bridge helps: its queries find more than the old model's",
        WORSE: "Keep the old model: its queries find more than bridged ones",
        NOT_SHOWN: "Not shown to find more than keeping the old model",
        PROVISIONAL: "Provisional: whether people find more than with the old model was not judged",
        NO_BRIDGE: f"No bridge helps: {record['reason']}",
    }
    say(f"{starts[verdict]}.")
    if against is not None:
        rows = [(name, against[key]) for name, key in (("keep", "keep"), ("bridge", "bridge"), ("gain", "gain"))]
        cells = [
            [name, per_cent(one["value"]), f"{per_cent(one['low'])} to {per_cent(one['high'])}"] for name, one in rows
        ]
        print_table([f"{against['queries']:,} queries", f"{against['score']} %", "interval"], cells, right=(1, 2))
    if verdict == PROVISIONAL:
        say("To judge it: --queries-old and --queries-new with --relevance, or with labels in all files.")
    if verdict != NO_BRIDGE:
        shared = "No map is needed, the two models share a space" if bridge.kind == "none" else "Agreement"
        say(f"{shared}: {record['reason']}. Agreement with the new model does not say that people find more.")
    if bridge.evidence.pairs < FEW_PAIRS:
        say(
            f"Only {counted(bridge.evidence.pairs, 'pair')}: expect a bridge that finds much less than the old model "
            "does, and figures that vary by many points; 1,000 or more are usual."
        )
    evidence, plain = bridge.evidence, bridge.evidence.without
    if plain is not None and bridge.kind != "none" and plain.value > evidence.chosen.value:
        say("Queries as they are do better: use no bridge, or leave out --kind.")
    print_table(
        ["candidate", f"{evidence.measure} %", "error", "exposure at 1", "at 10"],
        [_row(one, chosen=one is evidence.chosen) for one in evidence.candidates],
        right=(1, 2, 3, 4),
    )
    say(
        "*: chosen; of candidates within a standard error, the one that shows the nearest items further up, else the "
        "simplest. error: standard error, in points. exposure: how often old items are expected among the first places "
        "of a gallery embedded half by each model, relative to a full re-embedding; 1 is fair."
    )
    if len(evidence.curve) > 1:
        say(f"{record['more_pairs']} Measured with fewer of them:")
        points = [[f"{count:,}", per_cent(value, 1)] for count, value in evidence.curve]
        print_table(["pairs fitted on", f"{evidence.measure} %"], points, right=(0, 1))
    say(_basis(pairs, bridge))
    say(JUDGED)
    folder = record["folder"]
    kind = with_options(evidence.chosen.kind, evidence.chosen.options)
    say("Nothing was written." if folder is None else f"{folder}: written, kind {kind}.")


def _basis(pairs: "Pairs", bridge: "Bridge") -> str:
    used = f"{len(pairs):,} of {pairs.found:,} pairs" if len(pairs) < pairs.found else counted(len(pairs), "pair")
    left = [
        f"{count:,} only in the {which} set"
        for which, count in (("old", pairs.only_old), ("new", pairs.only_new))
        if count
    ]
    others = f" (left out: {', '.join(left)})" if left else ""
    return f"{used}{others}; {bridge.evidence.held_out:,} of them were held out from fitting to measure the candidates."


def _row(one: "Candidate", *, chosen: bool) -> list[str]:
    exposure = [decimal(one.exposure.get(k)) for k in (1, 10)]
    kind = with_options(one.kind, one.options)
    return [f"{kind}{' *' if chosen else ''}", per_cent(one.value, 1), per_cent(one.error, 1), *exposure]
