"""The cells that the tables and figures of IAM-CL2R share: which recipe, where its models come from, when it is due."""

from holdfast.experiments.load import read_recipe
from papers.stationary.cells import Cell
from papers.stationary.cifar_cells import OURS, REST, known
from papers.stationary.results import Results

RECIPES = {
    "replaced": "iam/cifar100r",
    "none": "iam/cifar100r-none",
    "architectures": "iam/cifar100r-architectures",
    "ablation": "iam/cifar100r-ablation",
    "celeba": "iam/celeba",
    "celeba-none": "iam/celeba-none",
}
"""Study -> the recipe it runs; results lie in ``iam/STUDY``."""

# Stages, behind those of CIFAR100/10: these runs need pre-trained models.
SHORT, LONG, ARCHITECTURES, MORE_SEEDS, ABLATION, LAST = range(REST + 1, REST + 7)

MAIN = ("er", "cvs", "simplex_fd", "simplex_hoc")
"""Run first at 31 tasks; the other methods come last."""

LONG_TASKS, SHORT_TASKS = 31, 7

REPLACED_AT = {SHORT_TASKS: (3, 5), LONG_TASKS: (11, 21)}
"""Number of tasks -> those that begin with a replacement."""

TITLES = {"replaced": "Two replacements", "none": "No replacement"}

QUICKLY_JUDGED = 'evaluation.protocols=["template", "mixed"]'
"""At 31 tasks a search of every image for each of the 496 pairs would be 254 TFLOP in float32 for one run."""


OUR_SETTING = (
    "Our own method has the settings it began with, which come from experiments that had looked at CIFAR10; the tries"
    " on the validation set came later and chose a smaller scale of λ's rule (0.5 instead of 0.68)."
)


def iam_cell(
    study: str,
    method: str,
    tasks: int,
    *,
    seed: int = 0,
    change: str = "",
    settings: tuple[str, ...] = (),
    stage: int = SHORT,
) -> Cell:
    """One run. A recipe of IAM-CL2R serves all methods, so the method is one of the settings."""
    own = (f"method.name={method}", *settings, *((QUICKLY_JUDGED,) if tasks == LONG_TASKS else ()))
    whose = "ours" if method == OURS else "paper"
    return Cell(study, RECIPES[study], method, tasks, "natural", seed, change, own, stage, "iam", whose)


def with_ours(methods: tuple[str, ...]) -> list[str]:
    return [*methods, *known((OURS,))]


def brought_in(study: str) -> list[str]:
    """The models that a study's recipe names, the first one first."""
    scenario = read_recipe(RECIPES[study])["scenario"]
    return [scenario["model"], *scenario.get("replace_with", [])]


def classes_of(model: str) -> int:
    """How many classes a model was pre-trained on; it is in its name, DATASET/BACKBONE-CLASSES-HEAD."""
    return int(model.rsplit("-", 2)[1])


def pretrained(results: Results, study: str = "replaced") -> str:
    """The note that belongs to every number: what the models were pre-trained on, and on what the paper's were.

    Epochs are those on record in ``results`` where a model is, else the recipe's.
    """
    models = brought_in(study)
    counts = ", ".join(str(classes_of(model)) for model in models)
    source = models[0].partition("/")[0]
    asked = read_recipe(f"pretrain/{source}")["train"]["epochs"]
    recorded = results.pretrained(study)
    epochs = [recorded.get(model.format(head="simplex"), {}).get("epochs", asked) for model in models]
    shown = str(epochs[0]) if len(set(epochs)) == 1 else ", ".join(map(str, epochs))
    return (
        f"Models pre-trained on {source} ({counts} classes, {shown} epochs); the paper's on ImageNet32 (100, 300, 600"
        " classes, 300 epochs)."
    )
