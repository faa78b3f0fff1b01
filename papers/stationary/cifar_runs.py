"""The runs that several CIFAR100/10 pages share: with the paper's settings, with changes, and of our own method."""

from papers.stationary.study_runs import StudyRun

PAPER_METHODS = ("er", "fan", "bct", "lce", "advbct", "cvs", "simplex_fd", "simplex_hoc")
OURS = "simplex_hoc_views"
"""Our own method, of which the paper has no row."""

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


def own_run(tasks: int) -> StudyRun:
    """The run of our own method that other pages change parts of."""
    return StudyRun("tuned", f"cifar100-10/tuned/{OURS}", OURS, tasks, stage=OUR_OWN, set_name="tuned")
