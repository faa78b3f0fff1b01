"""How each run came about: where it ran, on what data, how long, task by task."""

import math
from collections.abc import Sequence
from typing import Any

from holdfast.reports.curves import Line, chart
from holdfast.reports.records import RunRecord
from holdfast.reports.tables import text

_POINTS = 120  # a loss curve is a shape: more points than pixels only make the page heavy
_FINGERPRINT = 16


def facts(run: RunRecord) -> dict[str, Any]:
    """Folder, training time, data and environment of a run as one tree for the table of facts."""
    known: dict[str, Any] = {"run folder": run.folder.resolve().name, "method": run.method}
    seconds = [task["seconds"] for task in run.tasks if _is_number(task.get("seconds"))]
    steps = [task["steps"] for task in run.tasks if _is_number(task.get("steps"))]
    if seconds:
        known["training minutes"] = round(sum(seconds) / 60, 1)
    if steps:
        known["training steps"] = sum(steps)
    known["data"] = {key: _shortened(value) for key, value in run.data.items()}
    sittings = run.environment.get("sittings")  # each is an environment of its own: their number is enough here
    return known | run.environment | ({"sittings": len(sittings)} if isinstance(sittings, list) else {})


def task_tables(runs: Sequence[RunRecord], names: Sequence[str]) -> str:
    """One folded table per run: what each task added and cost."""
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
    heads = "".join(f'<th scope="col">{text(key.replace("_", " ").capitalize())}</th>' for key in keys)
    rows = "".join(
        "<tr>" + "".join(f"<td>{_shown(task.get(key))}</td>" for key in keys) + "</tr>" for task in run.tasks
    )
    return (
        f"<details><summary>Tasks of {text(name)} ({len(run.tasks)})</summary>"
        f'<div class="scroll" tabindex="0" role="region" aria-label="Tasks of {text(name)}"><table class="settings">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div></details>"
    )


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return text(f"{value:.1f}" if abs(value) >= 1 else f"{value:.3g}")
    return "" if value is None else text(value)


def _shortened(value: Any) -> Any:
    """Data facts with long fingerprints cut: the start is enough to tell two apart by eye."""
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
