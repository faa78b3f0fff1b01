"""A finished version on disk: the model, what the next one goes on from, the verdict, and the seal over it all."""

from pathlib import Path
from typing import Any

from holdfast.backbones import Encoder
from holdfast.engine.kept import Remembered
from holdfast.methods import Method
from holdfast.recipes.schema import Recipe
from holdfast.reports import write_check
from holdfast.seal import seal
from holdfast.storage import write_json, write_tensors
from holdfast.updating.evidence import summary
from holdfast.updating.parent import BUFFER, HELD_OUT, METHOD, Parent
from holdfast.updating.past import write_past
from holdfast.updating.plan import Plan

VERDICT, PAGE, MAP = "check.json", "check.html", "space_map.safetensors"


def write_version(
    out: Path,
    encoder: Encoder,
    method: Method,
    plan: Plan,
    recipe: Recipe,
    parent: Parent | None,
    verdict: dict[str, Any] | None,
    past: list[Remembered],
) -> dict[str, Any]:
    """Write it all, the seal last: without one the work is not done. The model's ``info``."""
    write_tensors(out / METHOD, method.state_dict())
    plan.buffer.save(out, BUFFER)
    plan.kept_out.save(out, HELD_OUT)
    write_past(out, past)
    space_map = method.space_map()
    if space_map is not None:
        space_map.save(out / MAP)
        if verdict is not None:
            note = f"judged without {MAP}: this method's stored vectors are meant to pass through it at every update"
            verdict = {**verdict, "notes": [*verdict.get("notes", []), note]}
    if verdict is not None:
        write_json(out / VERDICT, verdict)
        if "queries" in verdict:
            write_check(verdict, out / PAGE)
    stale = ("parent", "evidence", "data", "training_set")
    encoder.info = {
        **{key: value for key, value in encoder.info.items() if key not in stale},
        "task": plan.task.number,
        "start": plan.task.start,
        "reference": plan.task.reference,
        "method": recipe.method,
        # ``fit`` recorded the slots of a simplex. Without one, versions list their classes under the same key.
        **({"slots": plan.task.registry.to_json()} if method.num_slots is None else {}),
        "classes": list(plan.classes),
        "data": {
            "images": plan.num_trained,
            **({"of": "vectors"} if plan.images.holds_vectors else {}),
            "classes": len({int(label) for label in plan.images.labels[plan.task.new_indices]}),
            "new_classes": plan.task.num_new,
            "replayed": len(plan.task.buffer_indices),
            "fingerprint": plan.fingerprint,
        },
        **({"parent": parent.record()} if parent else {}),
        **({"evidence": summary(verdict, parent.record())} if parent and verdict else {}),
    }
    encoder.write_into(out)
    seal(out)
    return encoder.info
