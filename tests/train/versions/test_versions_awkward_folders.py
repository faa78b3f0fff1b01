"""Awkward folders give a clear list of problems or the right images, and no class is dropped silently."""

import csv
import tempfile
from collections import Counter
from pathlib import Path

from awkward_folders import SPLITS, Plan, plans, write
from hypothesis import HealthCheck, given, note, settings

from holdfast.core.errors import HoldfastError
from holdfast.core.problems import problem_file
from holdfast.core.wording import printable
from holdfast.embedders.image_folder import images_with_ids
from holdfast.train.data.decode import unreadable
from holdfast.train.versions import start
from holdfast.train.versions.samples import ImageFiles, SourceOptions, find_samples


def found_in(top: Path, out: Path, **options):
    """The samples and the warnings; or the error's text. Anything else that is raised is a defect."""
    warnings = []
    try:
        (found,) = find_samples(
            ImageFiles(16, "rgb"), [top], SourceOptions(**options), out, lambda event: warnings.append(event.text)
        )
    except HoldfastError as error:
        text = str(error)
        text.encode("utf-8")
        assert "\n" not in text
        assert len(text) > 20
        return None, warnings, text
    return found, warnings, ""


def expected(plan: Plan) -> Counter:
    return Counter({one.name: one.count for one in plan.classes if one.count})


def check_folder(plan: Plan, work: Path) -> Path | None:
    """Check one folder; returns it if it can be trained on."""
    top, out = work / "photos", work / "model"
    write(plan, top, work / "elsewhere")
    folders = [one for one in plan.classes if one.kind != "nowhere"]
    names = {one.name for one in folders}
    all_named_like_splits = bool(names) and names <= set(SPLITS)
    if not plan.splits and all_named_like_splits:
        # Only --split-folders no tells that these are classes.
        found, _, text = found_in(top, out)
        assert found is None or found.top == top / "train"
        options = {"split_folders": False}
    else:
        options = {}

    strict, warned, text = found_in(top, out, **options)
    listed = []
    if problem_file(out).exists():
        with problem_file(out).open(encoding="utf-8", newline="") as stream:
            listed = [row["path"] for row in csv.DictReader(stream)]
    wanted = expected(plan)
    skipped, told, no_image = found_in(top, out, skip_unreadable=True, **options)
    note(f"{text=} {listed=} {warned=} {told=} {no_image=}")
    if not folders:
        assert "empty; expected one folder per class" in text or "in no folder" in text
        return None
    # Every class is found, or it is in the list, itself or with its files.
    inside = top / "train" if plan.splits else top
    for one in plan.classes:
        path = printable(inside / one.name)
        found = one.count or any(entry == path or entry.startswith(f"{path}/") for entry in listed)
        assert found, f"{one.name!r} is dropped silently"
    assert (strict is None) == bool(listed)
    # Skipping leaves exactly the good images, and names the classes that are lost.
    if skipped is None:
        assert not wanted
        assert "no image is left" in no_image
        return None
    assert Counter(sample.class_name for sample in skipped.samples) == wanted
    lost = {printable(one.name) for one in folders if not one.count}
    assert set(skipped.lost_classes) == lost
    assert not lost or any("left out" in one and printable(min(lost)) in one for one in told) or len(lost) > 10
    assert (strict is None) == bool(skipped.problems)
    assert not plan.loose or any("beside the class folders" in one for one in told)
    # The gallery finds the same images.
    files, _ = images_with_ids([skipped.top])
    bad = {one.path for one in unreadable([file for _, file in files], name="check")}
    linked = {one.name for one in plan.classes if one.kind == "loop"}
    in_gallery = {file.absolute() for _, file in files if file not in bad and file.parent != skipped.top}
    if not linked:
        assert in_gallery == {sample.path for sample in skipped.samples}
    return top if len(wanted) > 1 else None


def in_new_folder(plan: Plan, train: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as work:
        top = check_folder(plan, Path(work))
        if top is None or train is None:
            return
        names = {one.name for one in plan.classes if one.kind != "nowhere"}
        classes = not plan.splits and names <= set(SPLITS)
        info = start(
            top, Path(work) / "model", settings=train, changes=["train.epochs=1", "data.colour='rgb'",
            "preprocess.mean=[0.4, 0.4, 0.4]", "preprocess.std=[0.3, 0.3, 0.3]"], device="cpu",
            skip_unreadable=True, split_folders=False if classes else None,
        )  # fmt: skip
        assert set(info["classes"]) == set(expected(plan))


RELAXED = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}


@settings(max_examples=25, **RELAXED)
@given(plans())
def test_some_awkward_folders(plan):
    in_new_folder(plan)
