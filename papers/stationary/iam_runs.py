"""The runs that the tables and figures of IAM-CL2R share: recipe, pre-trained models, position in the running order."""

import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence

from papers.stationary.cifar_runs import OURS, REST
from papers.stationary.formatting import method_name
from papers.stationary.recipe_files import read_study_recipe
from papers.stationary.result_page import Row
from papers.stationary.results import Results
from papers.stationary.study_runs import StudyRun

RECIPES = {
    "replaced": "iam/cifar100r",
    "changes": "iam/cifar100r",
    "none": "iam/cifar100r-none",
    "architectures": "iam/cifar100r-architectures",
    "ablation": "iam/cifar100r-ablation",
    "celeba": "iam/celeba",
    "celeba-none": "iam/celeba-none",
}
"""Study -> its recipe. Results are in ``iam/STUDY``."""

# Stages, after those of CIFAR100/10: these runs need pre-trained models.
SHORT, LONG, ARCHITECTURES, MORE_SEEDS, ABLATION, LAST = range(REST + 1, REST + 7)

MAIN = ("er", "cvs", "simplex_fd", "simplex_hoc")
"""Methods that are run first at 31 tasks."""

LONG_TASKS, SHORT_TASKS = 31, 7

REPLACED_AT = {SHORT_TASKS: (3, 5), LONG_TASKS: (11, 21)}
"""Number of tasks -> tasks that begin with a replacement."""

TITLES = {"replaced": "Two replacements", "none": "No replacement"}

FUSED = "train.executor=fused"
"""For runs made after those of Table 6, which used torch's kernels as the recipe still does."""

WITHOUT_INSTANCE = 'evaluation.protocols=["template", "mixed"]'
"""At 31 tasks a search by instance for each of the 496 pairs would take 254 TFLOP in float32 per run."""


def iam_run(
    study: str,
    method: str,
    tasks: int,
    *,
    seed: int = 0,
    change: str = "",
    settings: tuple[str, ...] = (),
    stage: int = SHORT,
) -> StudyRun:
    """One run of IAM-CL2R. One recipe serves all methods, so the method is one of the settings."""
    own = (f"method.name={method}", *settings, *((WITHOUT_INSTANCE,) if tasks == LONG_TASKS else ()))
    whose = "ours" if method == OURS else "paper"
    return StudyRun(study, RECIPES[study], method, tasks, "natural", seed, change, own, stage, "iam", whose)


def with_ours(methods: tuple[str, ...]) -> list[str]:
    return [*methods, OURS]


def pretrained_models(study: str) -> list[str]:
    """The pre-trained models that a study's recipe names, in the order of their use."""
    scenario = read_study_recipe(RECIPES[study])["scenario"]
    return [scenario["model"], *scenario.get("replace_with", [])]


def classes_of(model: str) -> int:
    """Number of classes a model was pre-trained on, from its name DATASET/BACKBONE-CLASSES-HEAD."""
    return int(model.rsplit("-", 2)[1])


DETAILS = (
    "The learning rate falls by a cosine, and at a replacement the loss compares with the loaded model, both as in the"
    " authors' code. The paper's text has steps at epochs 50 and 64 and does not name the model; page `replacing` has"
    " both changes."
)


def deviation_notes(results: Results, runs: Sequence[StudyRun]) -> tuple[str, ...]:
    """Notes on pre-training, and one on details of fine-tuning."""
    return *pretraining_notes(results, runs), DETAILS


def our_settings_note(rows: Sequence[Row]) -> tuple[str, ...]:
    """A note on the settings of our own method, if a row has finished runs of it."""
    if not any(row["method"] == OURS and row["seeds"] for row in rows):
        return ()
    return (
        "Our own method has its first settings, which were tuned partly on the test set (CIFAR10). The later tries on"
        " the validation set chose a smaller scale of λ's rule (0.5 instead of 0.68).",
    )


def pretraining_notes(results: Results, runs: Sequence[StudyRun]) -> Iterator[str]:
    """What the models that ``runs`` start from were pre-trained on here and in the paper, and whether all are the same.

    The epochs are those that the runs recorded; for a model without a record those of the recipe.
    """
    models = max(map(pretrained_models, dict.fromkeys(run.study for run in runs)), key=len)
    counts = ", ".join(str(classes_of(model)) for model in models)
    source = models[0].partition("/")[0]
    in_recipe = read_study_recipe(f"pretrain/{source}")["train"]["epochs"]
    recorded = {name.rpartition("-")[0]: model for run in runs for name, model in results.models(run).items()}
    epochs = [recorded.get(model.rpartition("-")[0], {}).get("epochs", in_recipe) for model in models]
    shown = str(epochs[0]) if len(set(epochs)) == 1 else ", ".join(map(str, epochs))
    yield (
        f"Models pre-trained on {source} ({counts} classes, {shown} epochs); the paper's on ImageNet32 (100, 300, 600"
        " classes, 300 epochs)."
    )
    if others := runs_from_other_weights(results, runs):
        several = len({run.method for run in runs}) > 1
        named = ", ".join(method_name(run.method) if several else run.change.replace("-", " ") for run in others)
        yield (
            f"The models were pre-trained more than once with these settings; {named} started from other weights than"
            " the rest."
        )


def runs_from_other_weights(results: Results, runs: Sequence[StudyRun]) -> list[StudyRun]:
    """The runs with a model that has the same name as in most runs of equally many tasks, but other weights.

    Two models of the same name have the same weights if their losses at the end of pre-training are equal.
    """
    losses = defaultdict[tuple[int, str], dict[StudyRun, float | None]](dict)
    for run in runs:
        for name, model in results.models(run).items():
            losses[run.tasks, name][run] = model.get("loss")
    usual = {key: statistics.mode(by_run.values()) for key, by_run in losses.items()}
    others = {run for key, by_run in losses.items() for run, loss in by_run.items() if loss != usual[key]}
    return [run for run in runs if run in others]
