"""What one update may change at a given lambda, and which lambda suits which number of tasks."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papers.stationary import table8
from papers.stationary.cells import Cell, classes_seen
from papers.stationary.cifar_cells import QUESTIONS, TASKS, paper_cell
from papers.stationary.exhibit import EVERYTHING, Exhibit, Figure, Row, Selection, Table, papers
from papers.stationary.layout import LEGEND, MISSING, by_commit, method_name, paper_scores, score, scores, still_missing
from papers.stationary.pictures import blank, look, plain_axis, save
from papers.stationary.results import Results, row

METHOD, COMPARED = "simplex_hoc", "er"
PRINTED = 0.1
"""The lambda of the paper's Table 1, for every number of tasks."""

LAMBDAS = {2: (PRINTED, 0.3, 0.6), 7: (PRINTED, 0.2, 0.3), 16: (0.05, PRINTED, 0.25), 31: (0.05, PRINTED)}
EVERYWHERE = 40
"""Classes that 7, 16 and 31 tasks all have seen at the end of some task."""


def lambda_cell(tasks: int, value: float) -> Cell:
    """d-Simplex-HOC with the paper's settings but for lambda; at 16 tasks it is a cell of Table 8."""
    if value == PRINTED:
        return paper_cell(METHOD, tasks)
    if tasks == table8.TASKS:
        return table8.cell("lambda", value)
    settings = (f"method.lambda={value}",)
    return paper_cell(METHOD, tasks, study="questions", change=f"lambda-{value:g}", settings=settings, stage=QUESTIONS)


def _listed() -> list[tuple[float | None, Cell]]:
    of_lambda: list[tuple[float | None, Cell]] = [
        (value, lambda_cell(tasks, value)) for tasks, values in LAMBDAS.items() for value in values
    ]
    return [*of_lambda, *((None, paper_cell(COMPARED, tasks)) for tasks in TASKS)]


def _cells() -> list[Cell]:
    return [cell for _, cell in _listed()]


def _rows(results: Results, selection: Selection) -> list[Row]:
    """Rows as Table 2's, with ``lambda`` (None for ER) and, per model, the ``classes`` seen and ``self_tests``."""
    found = []
    for value, cell in _listed():
        if selection.of([cell]):
            one = row([cell], results, paper=papers("table2")[cell.method][str(cell.tasks)])
            found.append(
                {**one, "lambda": value, "classes": classes_seen(cell.recipe), "self_tests": results.self_tests(cell)}
            )
    return found


def _tables(results: Results, selection: Selection) -> list[Table]:
    rows = _rows(results, selection)
    return [_strides([r for r in rows if r["lambda"] in (PRINTED, None)]), _lambdas([r for r in rows if r["lambda"]])]


def _strides(rows: Sequence[Row]) -> Table:
    def shown(r: Row, model: int | None) -> str:
        return "–" if model is None else MISSING if r["self_tests"] is None else score("AA", r["self_tests"][model])

    lines = []
    for r in rows:
        seen = r["classes"]
        at = seen.index(EVERYWHERE) if EVERYWHERE in seen else None
        counts = [str(r["tasks"] - 1), str(seen[1] - seen[0])]
        lines.append([method_name(r["method"]), *counts, *(shown(r, model) for model in (0, 1, at, -1))])
    header = ["method", "updates", "classes each", "model 1 %", "model 2 %", f"at {EVERYWHERE} classes %", "last %"]
    note = "Top-1 of a model on its own gallery, by template; a dash where no task ends with so many classes."
    title = f"What an update brings: CIFAR100/10, the paper's settings (λ {PRINTED:g}), natural order, seed 0"
    return Table(title, header, lines, right=range(1, 7), notes=(note, *by_commit(rows), *still_missing(rows)))


def _lambdas(rows: Sequence[Row]) -> Table:
    def named(r: Row) -> str:
        return f"{r['lambda']:g}" + (" (paper's)" if r["lambda"] == PRINTED else "")

    lines = [[str(r["tasks"]), named(r), *scores(r), str(len(r["seeds"])), paper_scores(r)] for r in rows]
    header = ["T", "λ", "AC", "AA %", "ACA %", "n", "paper, λ 0.1"]
    title = f"{method_name(METHOD)} with other λ: CIFAR100/10, the paper's settings otherwise, seed 0"
    return Table(title, header, lines, right=(0, 2, 3, 4, 5), notes=(LEGEND, *by_commit(rows), *still_missing(rows)))


def _figures(results: Results) -> list[Figure]:
    panels: dict[str, dict[str, list[list[float]]]] = {}
    for r in _rows(results, EVERYTHING):
        if r["lambda"] in (PRINTED, None) and r["self_tests"]:
            title = method_name(r["method"]) + (f", λ {r['lambda']:g}" if r["lambda"] else "")
            updates = "1 update" if r["tasks"] == 2 else f"{r['tasks'] - 1} updates"
            panels.setdefault(title, {})[updates] = [r["classes"], r["self_tests"]]
    caption = (
        "Top-1 of each model on its own gallery against the classes it has seen, for the same hundred classes in few"
        " updates or many; natural order, seed 0, by template."
    )
    return [Figure("stride", caption, panels, draw_strides)] if panels else []


def draw_strides(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], path: Path) -> None:
    """Self-tests in [0, 1] against classes seen: a panel per method, a line per number of updates."""
    figure = blank(8.2, 3.4)
    axes: Any = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (title, lines) in zip(axes, panels.items()):
        for i, (name, (classes, values)) in enumerate(lines.items()):
            axis.plot(classes, [100 * value for value in values], label=name, linewidth=1.6, markersize=4, **look(i))
        plain_axis(axis, "classes seen", "")
        axis.set_title(title, fontsize=9)
    axes[0].set_ylabel("self-test, %")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    save(figure, path, panels)


STRIDE = Exhibit("what one update brings at a given lambda, and other lambdas", _cells, _rows, _tables, _figures)
