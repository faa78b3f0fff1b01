"""The runs that several CIFAR100/10 tables share: with the paper's settings, with changes, or with tuned settings."""

from papers.stationary.study_runs import StudyRun

PAPER_METHODS = ("er", "fan", "bct", "lce", "advbct", "cvs", "simplex_fd", "simplex_hoc")
OURS = "simplex_hoc_views"
"""Our own method. The paper has no row of it, so it has no ``paper`` set."""

UNCHANGED = ("er", "simplex_hoc")
"""Methods for which the tries chose the paper's settings: both sets share their runs."""

TASKS = (2, 7, 16, 31)

# Stages, in running order.
FIRST_SEED, OUR_OWN, ABLATION, SEEDS, ICARL, TRIES, TUNED, QUESTIONS, REST = range(9)


def paper_run(
    method: str,
    tasks: int,
    *,
    order: str = "natural",
    seed: int = 0,
    study: str = "paper",
    change: str = "",
    settings: tuple[str, ...] = (),
    stage: int = FIRST_SEED,
) -> StudyRun:
    """A run with the paper's settings, or with some of them changed."""
    return StudyRun(study, f"cifar100-10/{method}", method, tasks, order, seed, change, settings, stage)


def tuned_run(method: str, tasks: int, *, order: str = "natural", seed: int = 0, stage: int = TUNED) -> StudyRun:
    """A run with the settings chosen for a method."""
    study, folder = ("paper", "") if method in UNCHANGED else ("tuned", "tuned/")
    return StudyRun(study, f"cifar100-10/{folder}{method}", method, tasks, order, seed, stage=stage, set_name="tuned")
