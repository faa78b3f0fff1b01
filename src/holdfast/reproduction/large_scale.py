"""The hours that the whole of Figure 8 would take, from what ``bench/large_step.py`` measured of two methods."""

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.methods import METHODS
from holdfast.reproduction.cifar import PAPER_METHODS
from holdfast.reproduction.layout import method_name
from holdfast.reproduction.results import Results
from holdfast.storage import read_json

SCENARIOS = 2
"""With replacements and without; a replacement costs no step, so a run of either takes as long."""

HELD, ALONE = "simplex_hoc", "er"
"""The measured methods: a step that asks the old model too, and one that does not."""

MEASURED = "bench/large_step-h200.json"


def resembles(method: str) -> str:
    """The measured method that another one counts as: by whether its loss asks the old model for features."""
    return ALONE if METHODS[method].old_features == "none" else HELD


def whole_experiment(hours: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The sum for the paper's eight methods in both scenarios and the two sets of pre-trained models they need.

    hours: of each measured method (``method``) and part (``step``: fine-tuning, pre-training), as the bench records
    them. None where a part of the two methods that stand for the others is not among them.
    """
    known = {(one["method"], one["step"]): float(one["hours"]) for one in hours}
    if any((method, step) not in known for method in (HELD, ALONE) for step in ("fine-tuning", "pre-training")):
        return None
    groups = {one: [method for method in PAPER_METHODS if resembles(method) == one] for one in (HELD, ALONE)}
    fine_tuning = SCENARIOS * sum(len(group) * known[one, "fine-tuning"] for one, group in groups.items())
    pretraining = known[HELD, "pre-training"] + known[ALONE, "pre-training"]  # into slots, and with a classifier
    names = {one: ", ".join(map(method_name, group)) for one, group in groups.items()}
    return {
        "hours": fine_tuning + pretraining,
        "fine_tuning_hours": fine_tuning,
        "pretraining_hours": pretraining,
        "runs": SCENARIOS * len(PAPER_METHODS),
        "counted_as": groups,
        "assumption": (
            f"methods whose loss asks the old model ({names[HELD]}) count as {method_name(HELD)}, the others"
            f" ({names[ALONE]}) as {method_name(ALONE)}; evaluation, reading and waiting are not in it"
        ),
    }


def hours_of_fig8(results: Results) -> str:
    """One clause: how long all of it would take by the committed figures, or who can tell where there are none."""
    path = results.root / MEASURED
    record = read_json(path) if path.is_file() else {"hours": []}
    whole = whole_experiment(record["hours"])
    if whole is None:
        return "`bench/large_step.py` says how many hours that is"
    each = {one["method"]: one["hours"] for one in record["hours"] if one["step"] == "fine-tuning"}
    return (
        f"on one {record['environment']['gpu']} about {whole['hours']:.0f} hours for the paper's eight methods in both"
        f" scenarios, {whole['fine_tuning_hours']:.0f} for the {whole['runs']} runs ({each[HELD]:.1f} for one of"
        f" {method_name(HELD)}, {each[ALONE]:.1f} of {method_name(ALONE)}) and {whole['pretraining_hours']:.0f} for the"
        f" six models (`bench/large_step.py`; {whole['assumption']})"
    )
