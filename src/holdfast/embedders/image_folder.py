"""Which files below a folder are images, which are passed over, and which are problems.

These rules hold for every command that reads image files:

- Hidden files and folders (names that begin with a dot) are not looked at.
- A file with the suffix of an image format is an image. HEIC and AVIF count, whether or not they can be decoded here.
- A file with another suffix, or none, is passed over.
- A name with control characters (a line break) or that is not valid Unicode is a problem, and so are a folder that
  cannot be listed, a link that leads nowhere, and an image that is not a regular file.
- An image that cannot be decoded is a problem. ``decode.unreadable`` finds out; the listing alone does not.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.core.problems import Problem
from holdfast.core.wording import broken_letters
from holdfast.embedders.pixels import IMAGE_SUFFIXES

BAD_NAME = "its name has a line break or another control character, or is not valid Unicode; rename it"
NO_TARGET = "a link that leads nowhere"


@dataclass
class FolderFiles:
    """What a folder holds.

    images: files with the suffix of an image format, sorted by folder and name.
    passed_over: files with other suffixes, and links to folders that are visited already or lie above.
    problems: files and folders that cannot be used.
    """

    images: list[Path] = field(default_factory=list)
    passed_over: list[Path] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.images) + len(self.passed_over) + len(self.problems)


def has_image_suffix(name: str) -> bool:
    """Whether a file of this name counts as an image."""
    return os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES


def find_files(top: Path) -> FolderFiles:
    """Everything below ``top``. Links are followed, and each folder is visited once; links to folders above are not.

    >>> from pathlib import Path
    >>> from holdfast.embedders.image_folder import find_files
    >>> Path("photos/cats").mkdir(parents=True)
    >>> for name in ("1.jpg", "2.PNG", "notes.txt", ".hidden.jpg"):
    ...     Path("photos/cats", name).touch()
    >>> found = find_files(Path("photos"))
    >>> [file.name for file in found.images], [file.name for file in found.passed_over]
    (['1.jpg', '2.PNG'], ['notes.txt'])
    """
    found = FolderFiles()

    def note(error: OSError) -> None:
        where = Path(str(error.filename))
        found.problems.append(Problem(where, f"a folder that cannot be listed ({error.strerror})"))

    seen = {str(above) for above in Path(os.path.realpath(top)).parents}
    for where, folders, names in os.walk(top, followlinks=True, onerror=note):
        real = os.path.realpath(where)
        if real in seen:
            found.passed_over.append(Path(where))
            folders.clear()
            continue
        seen.add(real)
        shown = sorted(name for name in folders if not name.startswith("."))
        found.problems += [Problem(Path(where, name), BAD_NAME) for name in shown if broken_letters(name)]
        folders[:] = [name for name in shown if not broken_letters(name)]
        for name in sorted(names):
            if not name.startswith("."):
                sort_file(Path(where, name), found)
    return found


def images_with_ids(paths: Sequence[Path]) -> tuple[list[tuple[str, Path]], FolderFiles]:
    """(id, file) of each image of folders and files, and everything that was found.

    The id of an image in a folder is its path below that folder; the images of a folder are sorted by it. A file that
    is named itself is an image whatever its suffix, and its id is its name.
    """
    listed: list[tuple[str, Path]] = []
    everything = FolderFiles()
    for path in paths:
        if path.is_dir():
            found = find_files(path)
            listed += sorted((file.relative_to(path).as_posix(), file) for file in found.images)
        elif reason := file_problem(path):
            found = FolderFiles(problems=[Problem(path, reason)])
        else:
            found = FolderFiles(images=[path])
            listed.append((path.name, path))
        everything.images += found.images
        everything.passed_over += found.passed_over
        everything.problems += found.problems
    return listed, everything


def sort_file(file: Path, found: FolderFiles) -> None:
    """Add one file to the images, to what is passed over, or to the problems."""
    image = has_image_suffix(file.name)
    linked_nowhere = file.is_symlink() and not os.path.exists(file)
    if linked_nowhere and (image or not file.suffix):  # without a suffix it may have been a folder of images
        found.problems.append(Problem(file, NO_TARGET))
    elif not image:
        found.passed_over.append(file)
    elif reason := file_problem(file):
        found.problems.append(Problem(file, reason))
    else:
        found.images.append(file)


def file_problem(file: Path) -> str:
    """What is wrong with an image file before it is opened; "" if nothing is."""
    if broken_letters(file.name):
        return BAD_NAME
    if not os.path.exists(file):
        return NO_TARGET if file.is_symlink() else "no such image file"
    return "" if os.path.isfile(file) else "not a regular file"
