"""Page ``mixed``: galleries of mixed versions in IAM-CL2R, their accuracy, and how often old items are shown."""

from typing import Any

from papers.stationary.cifar_runs import PAPER_METHODS
from papers.stationary.formatting import MISSING, commit_note, method_name, missing_note, score
from papers.stationary.iam_runs import (
    LONG,
    LONG_TASKS,
    MAIN,
    REPLACED_AT,
    SHORT,
    SHORT_TASKS,
    TITLES,
    iam_run,
    our_settings_note,
    pretraining_notes,
    with_ours,
)
from papers.stationary.result_page import ResultPage, Row, Selection, Table
from papers.stationary.results import Results, row
from papers.stationary.study_runs import StudyRun


def _runs() -> list[StudyRun]:
    short = [iam_run("replaced", method, SHORT_TASKS, stage=SHORT) for method in with_ours(PAPER_METHODS)]
    long = [iam_run(study, method, LONG_TASKS, stage=LONG) for study in TITLES for method in with_ours(MAIN)]
    return [*short, *long]


def _rows(results: Results, selection: Selection) -> list[Row]:
    found = []
    for run in selection.of(_runs()):
        record = results.record(run)
        seen = None if record is None else _seen(record["mixed"], REPLACED_AT[run.tasks][-1])
        found.append({**row([run], results, paper=None), "study": run.study, "mixed": seen})
    return found


def _seen(mixed: dict[str, Any], replaced_at: int) -> dict[str, float | None]:
    """Measures for the newest model's queries. "older": items embedded before task ``replaced_at``."""
    older = [version for version in mixed["versions"] if version["model"] < replaced_at]

    def share(key: str) -> float | None:
        shares = [version[key] for version in older]
        return None if None in shares else sum(shares)

    return {
        "accuracy": mixed["accuracy"][-1],
        "reindexed": mixed["reindexed"][-1],
        "older_items": share("share_of_gallery"),
        "older_hits": share("share_of_hits"),
        "lowest_offset": min((version["score_offset"] for version in older), default=None),
        "highest_offset": max((version["score_offset"] for version in older), default=None),
    }


def _tables(results: Results, selection: Selection) -> list[Table]:
    every = _rows(results, selection)
    lines = []
    for r in every:
        seen, shown = r["mixed"], [MISSING, "", "", "", ""]
        if seen:
            names = ("accuracy", "reindexed", "older_items", "older_hits")
            span = f"{seen['lowest_offset']:+.2f} to {seen['highest_offset']:+.2f}"
            shown = [*(score("AA", seen[name]) for name in names), span]
        lines.append([str(r["tasks"]), TITLES[r["study"]], method_name(r["method"]), *shown])
    header = ["T", "", "method", "found %", "re-indexed %", "older items %", "older hits %", "offset of older items"]
    notes = (
        "A T-th of the gallery arrives under each model and is never embedded again; the newest model's queries search"
        " all of it. found: the share whose nearest item has their class; re-indexed: the same with everything embedded"
        " anew. Older items came before the last replacement (the same task where there is none): their share of the"
        " gallery, their share of first places, and how much higher they score than they would embedded anew.",
        *pretraining_notes(results, selection.of(_runs())),
        *our_settings_note(every),
        *commit_note(every),
        *missing_note(every),
    )
    return [
        Table("CIFAR100R/10: one gallery of mixed versions, seed 0", header, lines, right=(0, 3, 4, 5, 6), notes=notes)
    ]


MIXED_GALLERIES = ResultPage("Galleries of mixed versions across replacements", _runs, _rows, _tables)
