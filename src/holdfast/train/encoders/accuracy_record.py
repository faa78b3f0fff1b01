"""The record of a version's accuracy (``info["accuracy"]``) in words."""

from collections.abc import Mapping
from typing import Any

from holdfast.core.wording import counted, per_cent

KNOWN_CLASSES = "known classes"
HELD_OUT_CLASSES = "held-out classes"
ADVICE = "advice"
FEWEST_QUERIES = 10
"""With fewer queries no difference counts as shown."""


WITHOUT_TRAINING = {"pixels": "raw pixels", "vectors": "raw vectors", "network": "the network before training"}
"""``raw_is`` of a record, in words."""


def beats_raw(record: Mapping[str, Any]) -> bool:
    """Whether the model is better than no training by more than chance; never with fewer than ten queries."""
    return bool(record["queries"] >= FEWEST_QUERIES and record["gain"]["low"] > 0)


def with_advice(accuracy: dict[str, Any]) -> dict[str, Any]:
    """``accuracy`` of a model of vectors with ``advice``: whether to search with the model or with the raw vectors.

    A model that finds less than the raw vectors on held-out classes is advised at most for the classes it was trained
    on, and not at all if the loss is shown. Without held-out classes the known ones decide. Images get no advice.
    """
    found = {which: accuracy[which] for which in _PLACES if "gain" in accuracy.get(which, {})}
    if not found or any(record["raw_is"] != "vectors" for record in found.values()):
        return accuracy
    return {**accuracy, ADVICE: _advice(found)}


_PLACES = {
    HELD_OUT_CLASSES: "on classes that it was not trained on",
    KNOWN_CLASSES: "on classes that it was trained on",
}


def _advice(found: Mapping[str, Mapping[str, Any]]) -> str:
    """found: the records of held-out and known classes, or of known classes alone."""
    decides = next(iter(found))
    gain = found[decides]["gain"]
    better = [which for which in found if beats_raw(found[which])]
    if gain["high"] < 0:
        return f"Keep your vectors: the model is worse than they are {_difference(found, decides)}."
    if gain["value"] < 0 and better:
        return (
            f"The model is better than your vectors {_difference(found, better[0])}. Keep your vectors for other "
            f"searches: it is not better {_difference(found, decides)}."
        )
    if gain["value"] < 0:
        return f"Keep your vectors: the model is not better than they are {_difference(found, decides)}."
    if not better:
        return f"Use either: the model is not shown to be better than your vectors {_difference(found, decides)}."
    text = f"Use the model: it is better than your vectors {_difference(found, better[0])}"
    return f"{text}." if decides in better else f"{text}, and not shown to be worse {_difference(found, decides)}."


def _difference(found: Mapping[str, Mapping[str, Any]], which: str) -> str:
    value, low, high = (f"{100 * found[which]['gain'][key]:+.1f}" for key in ("value", "low", "high"))
    return f"{_PLACES[which]} ({value} points, {low} to {high})"


def accuracy_sentences(accuracy: Mapping[str, Any]) -> list[str]:
    """All of ``info["accuracy"]`` in words: a sentence for each kind of class, then the advice."""
    said = []
    for which, record in accuracy.items():
        if which == ADVICE:
            said.append(record)
        elif "not_measured" in record:
            said.append(f"Accuracy, {_shown(which)}: not measured: {record['not_measured']}.")
        else:
            said.append(accuracy_sentence(record, which, conclude=ADVICE not in accuracy))
    return said


def accuracy_sentence(record: Mapping[str, Any], which: str = KNOWN_CLASSES, *, conclude: bool = True) -> str:
    """One record in words.

    which: the key of the record in ``info["accuracy"]``.
    conclude: say what follows if the model is not better than no training.
    """
    model, raw = record["model"], record["raw"]
    other = WITHOUT_TRAINING[record["raw_is"]]
    things = "vectors" if record["raw_is"] == "vectors" else "images"
    text = (
        f"Accuracy, {_shown(which)}: the nearest neighbour is right for {_with_interval(model)} of "
        f"{record['queries']:,} held-out {things}, and for {_with_interval(raw)} by {other} "
        f"({record['gallery']:,} {things} searched)."
    )
    if beats_raw(record) or not conclude:
        return text
    if record["queries"] < FEWEST_QUERIES:
        return f"{text} {counted(record['queries'], 'query')} cannot show a difference: hold more {things} out."
    if record["gain"]["high"] < 0:
        return f"{text} The model is worse than {other}: do not use it."
    if record["raw_is"] == "pixels":
        return f"{text} The model is not better than {other} by more than chance: do not rely on it."
    return f"{text} The model is not shown to be better than {other}."  # which may be as good as can be


def _shown(which: str) -> str:
    """In the output of an update, "known classes" are those of the version before; here the new ones are among them."""
    return "trained classes" if which == KNOWN_CLASSES else which


def _with_interval(estimate: Mapping[str, float]) -> str:
    value, low, high = (per_cent(estimate[key], 1) for key in ("value", "low", "high"))
    return f"{value} % ({low} to {high})"
