"""Whether there is enough to learn from: classes to tell apart, and images of each."""

import os
from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.updating.pictures import Picture
from holdfast.wording import counted, first_few, have

NAMED = 5


def refuse_one_class(pictures: Sequence[Picture], source: Path) -> None:
    """With one class every feature is right, so training would teach nothing, and say that all went well."""
    names = {one.name for one in pictures}
    if len(names) == 1:
        raise HoldfastError(
            f"{source}: has one class only, {names.pop()!r}, and a model learns by telling classes apart; give two or "
            "more, each as a folder or a label of its own"
        )


def nested_classes(pictures: Sequence[Picture], source: Path) -> str | None:
    """A warning where classes hold no images themselves but several folders of them: ``source`` may be too high.

    Images that lie deeper are no mistake by themselves, so one and the same folder in each class (``images``, say) is
    taken as it is.
    """
    if not source.is_dir():
        return None
    top = source / "train" if (source / "train").is_dir() else source  # as ``folder_listing`` reads it
    inside: defaultdict[str, set[str]] = defaultdict(set)
    for one in pictures:
        assert one.path is not None
        _, *folders, _ = one.path.relative_to(os.path.abspath(top)).parts
        inside[one.name].add(folders[0] if folders else "")
    nested = sorted(name for name, found in inside.items() if "" not in found)
    deeper = sorted({folder for name in nested for folder in inside[name]})
    if len(deeper) < 2:
        return None
    which = f"{len(nested)} of {counted(len(inside), 'class')} ({first_few(nested)}) {have(len(nested))}"
    only = f"no images directly inside, only folders of images ({first_few(deeper)})"
    advice = f"if these folders are the classes, --data is one level too high: try {top / nested[0]}"
    return f"{which} {only}, and each counts as one class; {advice}"


def lone_images(pictures: Sequence[Picture], known: Collection[str]) -> str | None:
    """A warning where classes that are not ``known`` yet come with a single image: it cannot be held out as well."""
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for one in pictures:
        contents[one.name].add(one.sha256)
    lone = sorted(name for name, found in contents.items() if len(found) == 1 and name not in known)
    if not lone:
        return None
    named = ", ".join(map(repr, lone[:NAMED])) + (f" and {len(lone) - NAMED} more" if len(lone) > NAMED else "")
    have = "has a single example" if len(lone) == 1 else "have a single example each"
    return (
        f"{len(lone)} of {counted(len(contents), 'class')} {have} ({named}): trained on, so no version can "
        "be judged by these classes until more come"
    )
