"""The cells that several CIFAR100/10 tables share: with the paper's settings, changed ones or the tuned ones."""

from holdfast.methods import METHODS
from papers.stationary.cells import Cell

PAPER_METHODS = ("er", "fan", "bct", "lce", "advbct", "cvs", "simplex_fd", "simplex_hoc")
OURS = "simplex_hoc_views"
"""Not the paper's: it has no row there and no ``paper`` set."""

UNCHANGED = ("er", "simplex_hoc")
"""Methods whose tries were won by the paper's own settings: their runs in both sets are the same runs."""

TASKS = (2, 7, 16, 31)

# Stages, in the order in which the work is to be done.
FIRST_SEED, OUR_OWN, ABLATION, SEEDS, ICARL, TRIES, TUNED, QUESTIONS, REST = range(9)


def paper_cell(
    method: str,
    tasks: int,
    *,
    order: str = "natural",
    seed: int = 0,
    study: str = "paper",
    change: str = "",
    settings: tuple[str, ...] = (),
    stage: int = FIRST_SEED,
) -> Cell:
    """A run with the paper's settings, or with some of them changed."""
    return Cell(study, f"cifar100-10/{method}", method, tasks, order, seed, change, settings, stage)


def tuned_cell(method: str, tasks: int, *, order: str = "natural", seed: int = 0, stage: int = TUNED) -> Cell:
    """A run with the settings chosen for a method."""
    study, folder = ("paper", "") if method in UNCHANGED else ("tuned", "tuned/")
    return Cell(study, f"cifar100-10/{folder}{method}", method, tasks, order, seed, stage=stage, set_name="tuned")


def known(methods: tuple[str, ...]) -> list[str]:
    """Those of ``methods`` that this version has."""
    return [method for method in methods if method in METHODS]
