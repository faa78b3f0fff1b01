"""The samples of a version's data: problems of all its folders in one error, or left out and listed in a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holdfast.data.problems import SKIP_ADVICE, Problem, name_problems, problem_file, problems_error, write_problems
from holdfast.errors import HoldfastError
from holdfast.events import OnEvent, RunWarning
from holdfast.lifecycle.samples import FoundSamples, Reader, VectorRows
from holdfast.wording import are, counted, first_few


@dataclass(frozen=True)
class SourceOptions:
    """How folders of images are read.

    split_folders: whether the top folders are splits; None: if all of them are named like splits.
    skip_unreadable: leave out files and folders that cannot be used, and list them in a file.
    """

    split_folders: bool | None = None
    skip_unreadable: bool = False


def find_samples(
    reader: Reader, sources: Sequence[Path], options: SourceOptions, out: Path, on_event: OnEvent
) -> list[FoundSamples]:
    """The samples of each source.

    reader: finds the samples.
    sources: folders or files.
    options: how they are read.
    out: folder of the new model. Problems are listed in a file beside it, OUT.unreadable.csv.
    on_event: called with warnings: what was passed over or left out, and which classes lost all images.

    All problems of all sources are refused in one error, unless they are to be skipped.
    """
    if isinstance(reader, VectorRows) and options != SourceOptions():
        raise HoldfastError(
            "--split-folders and --skip-unreadable (split_folders and skip_unreadable in Python) are for folders of "
            "images, and this model takes vectors; leave them out"
        )
    found = [reader.find(source, options.split_folders) for source in sources]
    problems = [problem for one in found for problem in one.problems]
    for note in (note for one in found for note in one.notes):
        on_event(RunWarning(note))
    listed = _write_list(problem_file(out), problems)
    if problems and not options.skip_unreadable:
        files = sum(one.files for one in found)
        source = next(one.top for one in found if one.problems)
        raise problems_error(source, problems, files, listed=listed, advice=SKIP_ADVICE)
    for one, source in zip(found, sources, strict=True):
        if not one.samples:
            count = counted(len(one.problems), "problem")
            raise HoldfastError(f"{source}: no image is left ({count}: {name_problems(one.problems, one.top)})")
        if one.problems:
            on_event(RunWarning(_skipped(one, source, listed)))
    return found


def _write_list(file: Path, problems: Sequence[Problem]) -> Path | None:
    """Write the list; None if there is nothing to list or the place cannot be written."""
    try:
        write_problems(file, problems)
    except OSError:
        return None
    return file if problems else None


def _skipped(found: FoundSamples, source: Path, listed: Path | None) -> str:
    count, lost = len(found.problems), found.lost_classes
    what = "1 file or folder" if count == 1 else f"{count:,} files or folders"
    where = f"list: {listed}" if listed else name_problems(found.problems, found.top)
    classes = f"{counted(len(lost), 'class')} {are(len(lost))} left out, because none of its images can be used"
    without = f"; {classes}: {first_few(lost, 10)}" if lost else ""
    return f"{source}: skipped {what} that cannot be used ({where}){without}"
