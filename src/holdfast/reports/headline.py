"""What the numbers say, in a sentence or two, and whether the runs may be ranked at all."""

import math
from collections.abc import Sequence

from holdfast.reports.records import ProtocolRecord, RunRecord
from holdfast.reports.tables import labels, per_cent, text


def obstacles(runs: Sequence[RunRecord]) -> list[str]:
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


def closed_set(runs: Sequence[RunRecord]) -> str:
    """A warning where some run was tested on classes it was trained on."""
    names = [label for run, label in zip(runs, labels(runs)) if run.data.get("open_set") is False]
    if not names:
        return ""
    return f'<p class="warning">Not an open-set test: {text(", ".join(names))} trained on classes it was tested on.</p>'


def carried(runs: Sequence[RunRecord]) -> str:
    """Say which runs did not leave old galleries as they were, so that nobody takes their scores for the others'."""
    names = [label for run, label in zip(runs, labels(runs)) if run.maps]
    if not names:
        return ""
    return (
        f'<p class="note">{text(", ".join(names))}: old galleries were not searched as they were stored. Every vector'
        " passed a learned map for each later model.</p>"
    )


def brought_in(runs: Sequence[RunRecord]) -> str:
    """Say which models were not trained on from the one before, but replaced it."""
    told = []
    for run, label in zip(runs, labels(runs)):
        found = [f"model {task.get('task')} from {task['model']}" for task in run.tasks if task.get("model")]
        if found:
            told.append(f"{label}: {', '.join(found).replace(' from', ' started from', 1)}.")
    return "".join(f'<p class="note">{text(line)}</p>' for line in told)


def headline(runs: Sequence[RunRecord], protocol: str) -> str:
    """The page's opening statement under ``protocol``: the best run if they can be ranked, else each run's own."""
    present = [(run, label) for run, label in zip(runs, labels(runs)) if protocol in run.protocols]
    reasons = obstacles(runs)
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
    """How the best run stands among the others, which are given best first."""
    among = f"{len(others) + 1} runs"
    if best.ACA == 0:  # a tie of all: what decided is the next score that differs
        return f"None of {among} has such a pairing; its average accuracy (AA) is the highest, {_percentage(best.AA)}."
    tied = [label for other, label in others if other.ACA == best.ACA]
    second, label = others[0]
    gap = f"also {text(', '.join(tied))}" if tied else f"next is {text(label)} with {_percentage(second.ACA)}"
    verb = "shares the highest" if tied else "has the highest"
    return f"It {verb} compatible accuracy (ACA) of {among}, {_percentage(best.ACA)}; {gap}."


def _rank(record: ProtocolRecord) -> tuple[float, ...]:
    """Order by ACA, then AC, then AA; what is undefined comes last."""
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
    shown = per_cent(score)
    return shown if math.isnan(score) else f"{shown}&nbsp;%"
