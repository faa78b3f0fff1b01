"""The part of the report about the assumption of Theorem 1, from ``stationarity.json`` if a run has one."""

import math
from collections.abc import Sequence
from typing import Any

from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, per_cent
from papers.run_pages.html import DASH, plain_table, text
from papers.run_pages.records import RunRecord

WORST = 5
_ABOUT = (
    "Theorem 1 says that old and new models are compatible on average if the prototypes stay where they are and no"
    " class's cap around its prototype grows. Measured on training images that both models have learned: a cap is the"
    " smallest angle around the prototype that holds 95&nbsp;% of a class. Eq.&nbsp;1a: a new feature is no farther"
    " from an old one of its class than the old feature was; Eq.&nbsp;1b: no nearer to one of another class."
)
_HEADS = (
    "Update", "Classes", "Caps that did not grow", "Cap before", "Cap after", "Prototype moved", "Mean to prototype",
    "Eq. 1a, pairs", "on average", "Eq. 1b, pairs", "on average", "Same image",
)  # fmt: skip


def stationarity_section(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """One part per measured run; empty if none was measured."""
    parts = [_part(run, name) for run, name in zip(runs, names) if run.stationarity]
    if not parts:
        return ""
    return f"<h2>Does the theorem’s assumption hold?</h2><p>{_ABOUT}</p>{''.join(parts)}"


def verdict(record: dict[str, Any]) -> str:
    """Whether the assumption holds in this run, and where it fails, as plain text."""
    updates = record["updates"]
    if not updates:
        return "There is no update with two models that can be compared, so the assumption is not tested."
    grown = {_name(u): round((1 - u["shrank"]) * u["num_classes"]) for u in updates}
    total, grew = sum(u["num_classes"] for u in updates), sum(grown.values())
    moved = max(u["moved"] for u in updates)
    still = f"prototypes moved by up to {moved:.1f}° in an update" if moved > 0.05 else "prototypes stayed"
    if grew == 0:
        caps = f"no cap grew in any of {counted(len(updates), 'update')}"
    else:
        worst = max(updates, key=lambda u: 1 - u["shrank"])
        caps = (
            f"caps grew in {grew} of {total} cases (a class in an update), most often in update {_name(worst)} "
            f"({grown[_name(worst)]} of {worst['num_classes']})"
        )
    answer = "holds" if grew == 0 and moved <= 0.05 else "does not hold"
    kept = {kind: sum(u[kind]["holds_on_average"] for u in updates) for kind in ("same", "different")}
    off = sum(u["old_class_mean"] for u in updates) / len(updates)
    return (
        f"The assumption {answer} in this run: {still}, and {caps}. The proof also has features spread evenly around "
        f"their prototype; here class means lie {off:.0f}° from it before an update. "
        f"On average Eq. 1a holds in {kept['same']} and "
        f"Eq. 1b in {kept['different']} of {counted(len(updates), 'update')}."
    )


def _part(run: RunRecord, name: str) -> str:
    record = run.stationarity
    try:
        rows = "".join(_row(update) for update in record["updates"])
        note = (
            f"{record['samples']} images, up to {record['per_class']} of a class; prototypes: {record['prototypes']}."
        )
        return (
            f"<h3>{text(name)}</h3><p><strong>{text(verdict(record))}</strong></p>"
            f"{plain_table(f'Stationarity of {name}', _HEADS, rows)}"
            f'<p class="note">{text(note)} Same image: distance between an image’s old and new feature. If both models'
            " were independent, as the proof assumes, it would be that of any two images of a class.</p>"
            f"{_worst(record['updates'], name)}"
        )
    except (KeyError, TypeError, ValueError) as error:
        where = run.folder / "stationarity.json"
        raise HoldfastError(
            f"{where}: incomplete ({error}); run python -m papers.stationary theory stationarity RUN to write it again"
        ) from error


def _row(update: dict[str, Any]) -> str:
    same, different = update["same"], update["different"]
    cells = [
        _name(update),
        update["num_classes"],
        f"{per_cent(update['shrank'], 0)} %",
        *(f"{update[key]:.1f}°" for key in ("old_cap", "new_cap", "moved")),
        f"{update['old_class_mean']:.1f}° → {update['new_class_mean']:.1f}°",
        *(part for kind in (same, different) for part in (_share(kind["share"]), _average(kind))),
        f"{update['same_image']:.3f} ({_distance(same['kt'])})",
    ]
    return "<tr>" + "".join(f"<td>{text(cell)}</td>" for cell in cells) + "</tr>"


def _worst(updates: Sequence[dict[str, Any]], name: str) -> str:
    """A collapsed table of the classes with the caps that grew most."""
    grown = [
        (item["new_cap"] - item["old_cap"], update, item)
        for update in updates
        for item in update["classes"]
        if item["new_cap"] > item["old_cap"]
    ]
    if not grown:
        return ""
    rows = "".join(
        f"<tr><td>{text(_name(update))}</td><td>{text(item['name'])}</td><td>{item['old_cap']:.1f}°</td>"
        f"<td>{item['new_cap']:.1f}°</td><td>{item['mean_moved']:.1f}°</td></tr>"
        for _, update, item in sorted(grown, key=lambda entry: -entry[0])[:WORST]
    )
    title = f"Where the assumption fails most, {name}"
    table = plain_table(title, ("Update", "Class", "Cap before", "Cap after", "Mean moved"), rows)
    return f"<details><summary>{text(title)}</summary>{table}</details>"


def _name(update: dict[str, Any]) -> str:
    return f"{update['from']} → {update['to']}"


def _share(value: float | None) -> str:
    return DASH if value is None or math.isnan(value) else f"{per_cent(value, 1)} %"


def _average(kind: dict[str, Any]) -> str:
    sign = "yes" if kind["holds_on_average"] else "no"
    return f"{sign} ({_distance(kind['kt'])} / {_distance(kind['kk'])})"


def _distance(value: float | None) -> str:
    return DASH if value is None else f"{value:.3f}"
