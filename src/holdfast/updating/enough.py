"""Whether there is enough to learn from: classes to tell apart, and images of each."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

from holdfast.errors import HoldfastError
from holdfast.updating.pictures import Picture
from holdfast.wording import counted

NAMED = 5


def refuse_one_class(pictures: Sequence[Picture], source: Path) -> None:
    """With one class every feature is right, so training would teach nothing, and say that all went well."""
    names = {one.name for one in pictures}
    if len(names) == 1:
        raise HoldfastError(
            f"{source}: has one class only, {names.pop()!r}, and a model learns by telling classes apart; give two or "
            "more, each as a folder or a label of its own"
        )


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
