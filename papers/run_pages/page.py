"""The self-contained HTML report about one or several runs.

It has a headline, a table of scores, matrices and curves per protocol, the mixed gallery, settings, and the facts of
each run: where it ran, on what data, how long each task took.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import write_text
from holdfast.core.wording import decimal, per_cent
from papers.run_pages.figures import Line, chart
from papers.run_pages.html import document, plain_table, text
from papers.run_pages.matrices import heatmap, legend
from papers.run_pages.records import ProtocolRecord, RunRecord, finite_or_nan, read_run
from papers.run_pages.stationarity import stationarity_section
from papers.run_pages.style import style
from papers.run_pages.tables import methods_table, run_labels, settings_tables

_WHAT_IS_SHOWN = (
    "Each model in a sequence replaced the one before it, and no gallery was re-embedded. The matrices show what this"
    " did to search: each row is the model of the queries, each column the gallery of an earlier model, each number the"
    " share of searches, in per cent, that found the right class first. A red cell is a failure: there the newer model"
    " searches an old gallery no better than the model that built it."
)
_TERMS = (
    "<dl><dt>AC</dt><dd>Average compatibility: the share of pairings of a newer model with an older gallery that beat"
    " the old model on its own gallery. A tie does not count.</dd>"
    "<dt>AA</dt><dd>Average accuracy: the mean of all cells of the matrix.</dd>"
    "<dt>ACA</dt><dd>Average compatible accuracy: the mean over those pairings, a failure counting as zero.</dd></dl>"
)
_BRIDGED = (
    "Queries of a newer model pass a map into the space of each older model, a bridge, fitted on a sample of the"
    " gallery. Stored vectors are unchanged. AC-R is the share of pairings in which bridged queries beat the old model"
    " on its own gallery. It is not the AC of papers, which is measured without any map."
)
_PROTOCOLS = {
    "template": "Template protocol: the gallery holds one vector per class, the mean of its images.",
    "instance": "Instance protocol: the gallery holds every image; the nearest one decides.",
}


def write_report(folders: Sequence[Path], out: Path, title: str | None = None) -> None:
    """Read the run folders and write the page to ``out`` in one step."""
    write_text(Path(out), render([read_run(folder) for folder in folders], title))


def render(runs: Sequence[RunRecord], title: str | None = None) -> str:
    """The whole page as HTML. Runs keep their order; scores are ranked only if the runs can be compared."""
    if not runs:
        raise HoldfastError("a report needs at least one run; give one or more run folders")
    protocols = sorted({name for run in runs for name in run.protocols}, key=lambda name: (name != "template", name))
    names = run_labels(runs)
    title = title or (f"{names[0]}: compatibility report" if len(runs) == 1 else "Compatibility report")
    body = [
        f"<h1>{text(title)}</h1><p>{_WHAT_IS_SHOWN}</p>",
        headline(runs, protocols[0]),
        closed_set_warning(runs),
        learned_maps_note(runs),
        replaced_models_note(runs),
        "<h2>Scores</h2>",
        methods_table(runs, protocols, rank=len(runs) > 1 and not ranking_obstacles(runs)),
        bridged_scores(runs, protocols, names),
        _TERMS,
        "<h2>Model by model</h2>",
        _switch(runs, protocols),
        mixed_section(runs, names),
        loss_chart(runs, names),
        stationarity_section(runs, names),
        "<h2>Settings</h2>",
        settings_tables([run.recipe for run in runs], names, "Settings"),
        "<h2>Where the numbers come from</h2>",
        settings_tables([run_facts(run) for run in runs], names, "Facts"),
        task_tables(runs, names),
    ]
    return document(title, style(len(protocols)), body, "Made with Holdfast from the records of the runs named above.")


def bridged_scores(runs: Sequence[RunRecord], protocols: Sequence[str], names: Sequence[str]) -> str:
    """The table of scores with bridged queries; empty if no run has them."""
    shown = [
        (replace(run, protocols=run.bridged.protocols), run.bridged, name)
        for run, name in zip(runs, names)
        if run.bridged is not None and run.bridged.protocols
    ]
    if not shown:
        return ""
    labels = [f"{name}, {bridged.kind}, {bridged.pairs:,} images" for _, bridged, name in shown]
    table = methods_table([run for run, _, _ in shown], protocols, rank=False, labels=labels, AC="AC-R")
    return f'<h3>With bridged queries</h3><p class="note">{_BRIDGED}</p>{table}'


def _switch(runs: Sequence[RunRecord], protocols: Sequence[str]) -> str:
    """One view per protocol; radio buttons, not a script, choose which one is seen."""
    lone = " hidden" if len(protocols) == 1 else ""
    buttons = "".join(
        f'<input type="radio" name="protocol" id="protocol-{i}"{" checked" if i == 0 else ""}{lone}>'
        f'<label for="protocol-{i}"{lone}>{text(name.capitalize())}</label>'
        for i, name in enumerate(protocols)
    )
    views = "".join(
        f'<div class="view view-{i}"><h3>{text(name.capitalize())}</h3>{_view(runs, name)}</div>'
        for i, name in enumerate(protocols)
    )
    return f'<div class="switch">{buttons}{views}</div>'


def _view(runs: Sequence[RunRecord], protocol: str) -> str:
    shown = [
        (slot, run, name) for slot, (run, name) in enumerate(zip(runs, run_labels(runs))) if protocol in run.protocols
    ]
    records = [(slot, name, run.protocols[protocol]) for slot, run, name in shown]
    accuracy = [Line(name, slot, _tasks(r.AA_tau), [100 * v for v in r.AA_tau]) for slot, name, r in records]
    compatibility = [Line(name, slot, _tasks(r.AC_tau), r.AC_tau) for slot, name, r in records]
    charts = (
        chart(compatibility, "Compatibility so far (AC after each task)", "task", top=1.0)
        + chart(accuracy, "Accuracy so far, % (AA after each task)", "task", from_zero=False)
        if max(len(r.matrix) for _, _, r in records) > 1
        else ""
    )
    explained = f'<p class="note">{_PROTOCOLS[protocol]}</p>' if protocol in _PROTOCOLS else ""
    measured = [(name, r.matrix, _kept_note(r.compatible, r.pairs)) for _, name, r in records]
    for _, run, name in shown:
        if run.bridged is not None and protocol in run.bridged.protocols:
            found = run.bridged.protocols[protocol]
            note = f"{_kept_note(found.compatible, found.pairs)} (AC-R)"
            measured.append((f"{name}, bridged queries ({run.bridged.kind})", found.matrix, note))
    extras = sorted({extra for _, _, r in records for extra in r.extras})
    folded = "".join(
        f"<details><summary>Also measured: {text(extra)}</summary>"
        f"{_matrices([(name, r.extras[extra], '') for _, name, r in records if extra in r.extras])}</details>"
        for extra in extras
    )
    return f'{explained}{_matrices(measured)}<div class="charts">{charts}</div>{folded}'


def _matrices(measured: Sequence[tuple[str, Any, str]]) -> str:
    known = np.concatenate([matrix[~np.isnan(matrix)] for _, matrix, _ in measured])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    drawn = "".join(heatmap(matrix, name, note, low, high) for name, matrix, note in measured)
    return f'{legend(low, high)}<div class="matrices">{drawn}</div>'


def _kept_note(compatible: np.ndarray, pairs: int) -> str:
    return f"{int(compatible.sum())} of {pairs} compatible" if pairs else ""


def _tasks(values: Sequence[float]) -> list[float]:
    return [float(task) for task in range(1, len(values) + 1)]


def ranking_obstacles(runs: Sequence[RunRecord]) -> list[str]:
    """Why these runs cannot be ranked against each other; empty if they can."""
    reasons = []
    sizes = sorted({len(record.matrix) for run in runs for record in run.protocols.values()})
    if len(sizes) > 1:
        reasons.append(f"the runs have different numbers of models ({', '.join(map(str, sizes))})")
    for part in ("query", "gallery"):
        seen = {run.data[part].get("fingerprint") for run in runs if isinstance(run.data.get(part), dict)} - {None}
        if len(seen) > 1:
            reasons.append(f"their {part} images are not the same")
    return reasons


def closed_set_warning(runs: Sequence[RunRecord]) -> str:
    """A warning if a run was tested on classes that it was trained on."""
    names = [label for run, label in zip(runs, run_labels(runs)) if run.data.get("open_set") is False]
    if not names:
        return ""
    return f'<p class="warning">Not an open-set test: {text(", ".join(names))} trained on classes it was tested on.</p>'


def learned_maps_note(runs: Sequence[RunRecord]) -> str:
    """A note that names the runs with learned maps: their scores are not comparable with those of the others."""
    names = [label for run, label in zip(runs, run_labels(runs)) if run.maps]
    if not names:
        return ""
    return (
        f'<p class="note">{text(", ".join(names))}: old galleries were not searched as they were stored. Every vector'
        " passed a learned map for each later model.</p>"
    )


def replaced_models_note(runs: Sequence[RunRecord]) -> str:
    """A note that names the models that replaced the one before instead of continuing from it."""
    notes = []
    for run, label in zip(runs, run_labels(runs)):
        found = [f"model {task.get('task')} from {task['model']}" for task in run.tasks if task.get("model")]
        if found:
            notes.append(f"{label}: {', '.join(found).replace(' from', ' started from', 1)}.")
    return "".join(f'<p class="note">{text(line)}</p>' for line in notes)


def headline(runs: Sequence[RunRecord], protocol: str) -> str:
    """The headline under ``protocol``: the best run, or one line per run if they cannot be ranked."""
    present = [(run, label) for run, label in zip(runs, run_labels(runs)) if protocol in run.protocols]
    reasons = ranking_obstacles(runs)
    if reasons:
        lines = "".join(f"<p>{_kept(run.protocols[protocol], label)}</p>" for run, label in present)
        why = text(" and ".join(reasons))
        return f'<div class="headline">{lines}</div><p class="warning">No run is called the best: {why}.</p>'
    ranked = sorted(present, key=lambda item: _rank(item[0].protocols[protocol]), reverse=True)
    run, label = ranked[0]
    best = run.protocols[protocol]
    more = [_growth(best)]
    if len(ranked) > 1 and not math.isnan(best.ACA):
        more.insert(0, _standing(best, [(other.protocols[protocol], label) for other, label in ranked[1:]]))
    return f'<div class="headline"><p>{_kept(best, label)}</p><p class="note">{" ".join(more)}</p></div>'


def _standing(best: ProtocolRecord, others: Sequence[tuple[ProtocolRecord, str]]) -> str:
    """The best run compared with the others, which are given best first."""
    among = f"{len(others) + 1} runs"
    if best.ACA == 0:  # all runs tie at 0; the order comes from AA
        return f"None of {among} has such a pairing; its average accuracy (AA) is the highest, {_percentage(best.AA)}."
    tied = [label for other, label in others if other.ACA == best.ACA]
    second, label = others[0]
    gap = f"also {text(', '.join(tied))}" if tied else f"next is {text(label)} with {_percentage(second.ACA)}"
    verb = "shares the highest" if tied else "has the highest"
    return f"It {verb} compatible accuracy (ACA) of {among}, {_percentage(best.ACA)}; {gap}."


def _rank(record: ProtocolRecord) -> tuple[float, ...]:
    """The sort key: ACA, then AC, then AA; undefined values come last."""
    return tuple(-1.0 if math.isnan(value) else value for value in (record.ACA, record.AC, record.AA))


def _kept(record: ProtocolRecord, label: str) -> str:
    kept, pairs = int(record.compatible.sum()), record.pairs
    if pairs == 0:
        return f"{text(label)} has one model so far: there is no older gallery to keep working."
    if pairs == 1:
        works = f"works {'better' if kept else 'no better'} than the old model did"
        return f"With {text(label)}, the one pairing of a newer model with an older gallery {works}."
    which = f"all {pairs}" if kept == pairs else f"none of {pairs}" if kept == 0 else f"{kept} of {pairs}"
    return (
        f"With {text(label)}, {which} pairings of a newer model with an older gallery"
        " work better than the old model did."
    )


def _growth(record: ProtocolRecord) -> str:
    first, last = float(record.matrix[0, 0]), float(record.matrix[-1, -1])
    if record.pairs == 0 or math.isnan(first) or math.isnan(last):
        return ""
    way = "up" if last > first else "down" if last < first else "unchanged"
    return (
        f"On its own gallery the last model reaches {_percentage(last)}, {way} from {_percentage(first)} at the start."
    )


def _percentage(score: float) -> str:
    shown = per_cent(score, 1)
    return shown if math.isnan(score) else f"{shown}&nbsp;%"


_POINTS = 120  # more points than pixels only make the page larger
_FINGERPRINT = 16


def run_facts(run: RunRecord) -> dict[str, Any]:
    """Folder, training time, data and environment of a run as one tree for the table of facts."""
    known: dict[str, Any] = {"run folder": run.folder.resolve().name, "method": run.method}
    seconds = [task["seconds"] for task in run.tasks if _is_number(task.get("seconds"))]
    steps = [task["steps"] for task in run.tasks if _is_number(task.get("steps"))]
    if seconds:
        known["training minutes"] = round(sum(seconds) / 60, 1)
    if steps:
        known["training steps"] = sum(steps)
    known["data"] = {key: _shortened(value) for key, value in run.data.items()}
    sittings = run.environment.get("sittings")  # a list of environments; only their number is shown
    return known | run.environment | ({"sittings": len(sittings)} if isinstance(sittings, list) else {})


def task_tables(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """One collapsed table per run: classes, steps and seconds of each task."""
    return "".join(_task_table(run, name) for run, name in zip(runs, names) if run.tasks)


def loss_chart(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Training loss over the share of training done; empty if no log has a "loss"."""
    lines = []
    for slot, (run, name) in enumerate(zip(runs, names)):
        losses = [float(r["loss"]) for r in run.log if _is_number(r.get("loss")) and math.isfinite(r["loss"])]
        if len(losses) > 1:
            width = math.ceil(len(losses) / _POINTS)
            means = [sum(part) / len(part) for part in (losses[i : i + width] for i in range(0, len(losses), width))]
            lines.append(Line(name, slot, [100 * i / (len(means) - 1) for i in range(len(means))], means))
    if not lines:
        return ""
    return f'<div class="charts">{chart(lines, "Training loss", "% of training", markers=False)}</div>'


def _task_table(run: RunRecord, name: str) -> str:
    keys = list(dict.fromkeys(key for task in run.tasks for key in task))
    heads = [text(key.replace("_", " ").capitalize()) for key in keys]
    rows = "".join(
        "<tr>" + "".join(f"<td>{_shown(task.get(key))}</td>" for key in keys) + "</tr>" for task in run.tasks
    )
    table = plain_table(f"Tasks of {name}", heads, rows)
    return f"<details><summary>Tasks of {text(name)} ({len(run.tasks)})</summary>{table}</details>"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return text(f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}")
    return "" if value is None else text(value)


def _shortened(value: Any) -> Any:
    """Facts of the data with fingerprints shortened; the first characters are enough to compare two by eye."""
    if isinstance(value, dict):
        return {
            key: f"{item[:_FINGERPRINT]}…"
            if key == "fingerprint" and isinstance(item, str) and len(item) > _FINGERPRINT
            else item
            for key, item in value.items()
        }
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_EXPLAINED = (
    "Items arrive over time. Each is embedded once, by the model in use when it arrives. Queries of the newest model"
    " search all of them together. Re-embedded: the same search after the newest model has embedded the whole gallery."
    " Exposure: a version's share of the first places, divided by the share that the same items have when everything is"
    " re-embedded. 1 is fair; below 1, its items are shown too rarely. Offset: how much higher its items score as"
    " stored than re-embedded."
)
_WAYS_EXPLAINED = (
    "Bridge: a map of the queries into the space of each older version. Scaled: scores of each older version are made"
    " comparable with those of the newest, measured on held-out images."
)


def mixed_section(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """Accuracy over time as a chart, and a table of versions for each run; empty if no run has a mixed gallery."""
    shown = [(slot, run.mixed, name) for slot, (run, name) in enumerate(zip(runs, names)) if run.mixed]
    if not shown:
        return ""
    lines = []
    for slot, mixed, name in shown:
        for key, label in (("accuracy", name), ("reindexed", f"{name}, re-embedded")):
            values = [100 * finite_or_nan(value) for value in _list(mixed.get(key))]
            own = slot if key == "accuracy" else slot + len(runs)
            lines.append(Line(label, own, [float(t) for t in range(1, len(values) + 1)], values))
    drawn = chart(lines, "Mixed gallery: accuracy, % (after each task)", "task", from_zero=False)
    tables = "".join(_versions(mixed, name) for _, mixed, name in shown)
    ways = "".join(_ways(run, name) for run, name in zip(runs, names) if run.mixed)
    return (
        f'<h2>A gallery of mixed versions</h2><p class="note">{_EXPLAINED}</p><div class="charts">{drawn}</div>{ways}'
        f"{tables}"
    )


def _ways(run: RunRecord, name: str) -> str:
    """Accuracy and exposure of each version with and without bridges and scaled scores."""
    if run.bridged is None or not run.bridged.mixed:
        return ""
    rows = []
    for way in ({"query_vectors": "plain", "scores": "raw", **run.mixed}, *run.bridged.mixed):
        versions = [one for one in _list(way.get("versions")) if isinstance(one, dict)]
        exposures = [", ".join(_exposure(one, places) for one in versions) for places in ("1", "10")]
        accuracy = [finite_or_nan(value) for value in _list(way.get("accuracy"))] or [math.nan]
        bridge = run.bridged.kind if way.get("query_vectors") == "bridged" else "none"
        cells = (bridge, way.get("scores", ""), per_cent(accuracy[-1], 1), *exposures)
        rows.append("".join(f"<td>{text(cell)}</td>" for cell in cells))
    again = [finite_or_nan(value) for value in _list(run.mixed.get("reindexed"))] or [math.nan]
    rows.append(f"<td>re-embedded</td><td></td><td>{per_cent(again[-1], 1)}</td><td>1</td><td>1</td>")
    heads = ("Bridge", "Scores", "Accuracy %", "Exposure at 1, oldest version first", "Exposure at 10")
    return _table(f"Exposure in the gallery of {name}", heads, rows, f'<p class="note">{_WAYS_EXPLAINED}</p>')


def _versions(mixed: dict[str, Any], name: str) -> str:
    rows = [
        f"<td>{text(version.get('model', ''))}</td>"
        f"<td>{per_cent(finite_or_nan(version.get('share_of_gallery')), 1)}</td>"
        f"<td>{per_cent(finite_or_nan(version.get('share_of_hits')), 1)}</td>"
        f"<td>{_exposure(version, '1')}</td><td>{_exposure(version, '10')}</td>"
        f"<td>{decimal(finite_or_nan(version.get('score_offset')), 4, '+')}</td>"
        f"<td>{decimal(finite_or_nan(version.get('score_offset_others')), 4, '+')}</td>"
        for version in _list(mixed.get("versions"))
        if isinstance(version, dict)
    ]
    heads = (
        "Embedded by model",
        "Share of gallery %",
        "Share of first places %",
        "Exposure at 1",
        "Exposure at 10",
        "Offset",
        "Offset, other classes",
    )
    return _table(f"Versions in the gallery of {name}", heads, rows)


def _table(label: str, heads: Sequence[str], rows: Sequence[str], note: str = "") -> str:
    """A collapsed table. rows: the cells of each row as HTML."""
    table = plain_table(label, heads, "".join(f"<tr>{row}</tr>" for row in rows))
    return f"<details><summary>{text(label)}</summary>{note}{table}</details>"


def _exposure(version: dict[str, Any], places: str) -> str:
    ratios = version.get("exposure")
    return decimal(finite_or_nan(ratios.get(places) if isinstance(ratios, dict) else None))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
