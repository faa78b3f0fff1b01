"""The README.md of a saved model: network, training data, and the versions it was checked against."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.storage import write_text
from holdfast.core.wording import counted
from holdfast.train.encoders.accuracy_record import accuracy_sentences

CARD = "README.md"


def write_card(folder: Path, description: Mapping[str, Any], weights_sha256: str) -> None:
    """Write the card. description: the model's config.json."""
    write_text(folder / CARD, card(description, weights_sha256))


def card(description: Mapping[str, Any], weights_sha256: str) -> str:
    """The text of the card. All facts come from the model's config; missing ones are named as not recorded."""
    info = description["info"]
    lines = ["# Holdfast model", ""]
    lines += _table(["", ""], [*_facts(description), ("weights, sha256", f"`{weights_sha256}`")])
    lines += _accuracy(info)
    lines += ["", "## Whose stored vectors its queries may search", "", *_evidence(info)]
    lines += _old_items(info)
    lines += ["", "## Use", "", "```python", "from holdfast import Encoder", ""]
    example = "vectors" if _takes_vectors(description["preprocess"]) else '["image.jpg"]'
    lines += ['encoder = Encoder.from_pretrained("this folder")', f"encoder.encode({example})", "```", ""]
    return "\n".join(lines)


def _facts(description: Mapping[str, Any]) -> list[tuple[str, str]]:
    info, spec = description["info"], description["backbone"]
    network = spec["name"] if isinstance(spec, Mapping) else description["backbone_class"]
    size, own = description["dim"], description["feature_dim"]
    facts = [("network", f"{network}, {own} features" + (f" projected to {size}" if size != own else ""))]
    if size != own:
        before = description.get("readout") == "backbone"
        facts.append(("stored and compared", f"the {own} before the projection" if before else f"the {size} projected"))
    if info.get("method"):
        facts.append(("method", str(info["method"])))
    if info.get("task"):
        facts.append(("version", str(info["task"])))
    parent, slots = info.get("parent"), info.get("slots")
    if isinstance(parent, Mapping):
        facts.append(("trained from", f"`{parent['weights_sha256'][:16]}` ({parent['name']})"))
    facts.append(("input", _input(description["preprocess"])))
    facts.append(("trained on", _data(info)))
    if isinstance(slots, Mapping) and isinstance(slots.get("owners"), Mapping):
        total, owned = slots["num_slots"], len(slots["owners"])
        facts.append(("slots", f"{total}: {owned} owned, {total - owned} free"))
    return facts


def _input(preprocess: Mapping[str, Any] | None) -> str:
    if preprocess is None:
        return "tensors, preprocessed by the caller"
    if _takes_vectors(preprocess):
        return f"vectors of {preprocess['width']} numbers"
    height, width = preprocess["size"]
    return f"{preprocess['colour']} images, {height} x {width}"


def _takes_vectors(preprocess: Mapping[str, Any] | None) -> bool:
    return preprocess is not None and "width" in preprocess


def _data(info: Mapping[str, Any]) -> str:
    parts = []
    for key, prefix in (
        ("data", ""),
        ("training_set", f"tasks 1 to {info.get('task')} of "),
        ("pretrained", "before: "),
    ):
        data = info.get(key)
        if isinstance(data, Mapping) and {"images", "classes", "fingerprint"} <= data.keys():
            trained_on = counted(data["images"], data.get("of", "images").removesuffix("s"))
            counts = f"{trained_on} of {counted(data['classes'], 'class')}"
            parts.append(f"{prefix}{counts}, fingerprint `{data['fingerprint']}`")
    return "; ".join(parts) or "not recorded"


def _accuracy(info: Mapping[str, Any]) -> list[str]:
    """The section on the model's accuracy; empty if nothing is recorded."""
    found = info.get("accuracy")
    if not isinstance(found, Mapping) or not found:
        return []
    lines = ["", "## Accuracy", ""]
    for sentence in accuracy_sentences(found):
        lines += [sentence, ""]
    return lines[:-1]


def _evidence(info: Mapping[str, Any]) -> list[str]:
    evidence = info.get("evidence")
    if not isinstance(evidence, list) or not evidence:
        return ["Not checked against another version."]
    first = evidence[0]
    asked = _loss(first).get("question", "at most 1 point lost").lower()
    header = [
        "queries of",
        asked,
        "re-embedding kept, %",
        "gain, points (interval)",
        "against keeping the old model",
        "measured on",
    ]
    rows = [
        [
            str(entry["which"]),
            f"**{_loss(entry).get('answer', '–')}**",
            _kept(entry),
            _gain(entry),
            str(entry["verdict"]),
            f"{counted(entry['classes'], 'class')}, {counted(entry['queries'], 'query')}, {entry['gallery']} stored",
        ]
        for entry in evidence
    ]
    how = f"{first['score']}, {first['protocol']} protocol, {100 * first['confidence']:g} % intervals, held-out images."
    against = f"Checked against `{first['weights_sha256'][:16]}` ({first['name']})."
    gain = "The gain is that of new queries over keeping the old model."
    known = " Known classes decide: an old index holds no items of new classes." if len(evidence) > 1 else ""
    return [f"{against}{known}", "", *_table(header, rows), "", f"{how} {gain}"]


def _loss(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whether at most the accepted loss is lost; empty if not recorded, as by earlier versions."""
    return entry.get("loss") or {}


def _kept(entry: Mapping[str, Any]) -> str:
    kept = entry.get("kept")
    if not kept or kept["value"] is None:
        return "–"
    if kept["low"] is None or kept["high"] is None:
        return f"{100 * kept['value']:.1f}"
    return f"{100 * kept['value']:.1f} ({100 * kept['low']:.1f} to {100 * kept['high']:.1f})"


def _old_items(info: Mapping[str, Any]) -> list[str]:
    """The section on items that older versions embedded; empty if nothing is recorded."""
    found = info.get("old_items")
    if not isinstance(found, list) or not found:
        return []
    header = ["version", "weights", "bridge", "exposure at 1, at 10", "without the bridge", "measured on"]
    rows = [
        [
            str(entry["name"]),
            f"`{entry['weights_sha256'][:16]}`",
            *(["–", "–", "–", f"not measured: {entry['not_measured']}"] if "not_measured" in entry else _served(entry)),
        ]
        for entry in found
    ]
    return [
        "",
        "## Items of older versions in one gallery",
        "",
        *_table(header, rows),
        "",
        "Expected exposure: the share of the first places that items of the older version take, relative to a full "
        "re-embedding, in a gallery with half of the items embedded by each. 1 is fair. `holdfast gallery register` "
        "measures again on the gallery's own items, and chooses the bridge by that.",
    ]


def _served(entry: Mapping[str, Any]) -> list[str]:
    measured_on = f"{counted(entry['pairs'], 'image')}, {entry['held_out']} held out"
    return [
        str(entry["kind"]),
        _exposures(entry["exposure"]),
        "cannot be compared" if entry["exposure_without"] is None else _exposures(entry["exposure_without"]),
        measured_on if entry["exposure"] else f"{measured_on}: too few for exposure",
    ]


def _exposures(ratios: Mapping[str, float | None]) -> str:
    return ", ".join("–" if ratio is None else f"{ratio:.2f}" for ratio in ratios.values()) or "–"


def _gain(entry: Mapping[str, Any]) -> str:
    gain = entry.get("gain")
    if gain is None:
        return "–"
    if gain["low"] is None or gain["high"] is None:
        return f"{100 * gain['value']:+.2f}"
    return f"{100 * gain['value']:+.2f} ({100 * gain['low']:+.2f} to {100 * gain['high']:+.2f})"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
