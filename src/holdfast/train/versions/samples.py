"""What versions are trained and checked on: image files, or vectors of a file, each identified by its content.

A reader finds samples, hashes them and loads their pixels or vectors. ``find_samples`` reads all folders of a version.
It refuses unusable files of all folders in one error, or leaves them out and lists them in a file. The other functions
choose the samples that are held out from training and warn about data that can hardly be learned from.
"""

import contextlib
import hashlib
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import ClassVar, Protocol

import numpy as np
from PIL import Image

from holdfast.core.checksums import sha256_of
from holdfast.core.errors import HoldfastError
from holdfast.core.problems import SKIP_ADVICE, Problem, name_problems, problem_file, problems_error, write_problems
from holdfast.core.wording import are, counted, first_few, have, printable
from holdfast.embedders.pixels import Colour
from holdfast.train.data.decode import decode, unreadable
from holdfast.train.data.readers.image_files import FoundImages, find_in_csv, find_in_folders
from holdfast.train.data.readers.vectors import ALL, VECTOR_SUFFIXES, read_labelled, rows_of_split
from holdfast.train.events import OnEvent, RunWarning


@dataclass(frozen=True)
class SampleRef:
    """One image file, or one vector of a file.

    class_name: its class.
    path: the file.
    sha256: hash of the file's bytes, or of the vector's.
    """

    class_name: str
    path: Path
    sha256: str


@dataclass(frozen=True, eq=False)
class FoundSamples:
    """The samples of one source.

    top: the folder that has the classes' folders, or the file.
    samples: those that can be read.
    problems: files and folders that cannot be used.
    notes: sentences that the user should read.
    lost_classes: classes of which no sample can be read.
    files: how many files were looked at.
    """

    top: Path
    samples: list[SampleRef]
    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    lost_classes: tuple[str, ...] = ()
    files: int = 1


class Reader(Protocol):
    """Finds samples and reads them.

    noun: what a sample is called in messages.
    """

    noun: ClassVar[str]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one sample: H x W x C."""

    def find(self, source: Path, split_folders: bool | None = None) -> FoundSamples:
        """All samples of ``source``; only the split ``train`` if it has splits.

        split_folders: whether the folders in ``source`` are splits; None: if all of them are named like splits.
        """

    def read(self, samples: Sequence[SampleRef]) -> np.ndarray:
        """N x ``shape``."""

    def unchanged(self, samples: Sequence[SampleRef]) -> list[SampleRef]:
        """The samples that still exist with the same content."""

    def label(self, sample: SampleRef) -> str:
        """The sample's name in a report."""


@dataclass(frozen=True)
class ImageFiles:
    """Reads image files.

    size: side of the square, in pixels; 0 to find files and read none.
    colour: "rgb" or "grey".
    resize: shorter side before the square is cut out, in pixels; None: ``size``.
    """

    noun: ClassVar[str] = "image"

    size: int = 0
    colour: Colour = "rgb"
    resize: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size, self.size, 3 if self.colour == "rgb" else 1

    def find(self, source: Path, split_folders: bool | None = None) -> FoundSamples:
        """All images of a folder with one folder per class, or of a CSV file. Each is decoded once, as a check."""
        found = find_images(source, split_folders)
        listing = found.listing
        bad = unreadable(listing.files, name=f"{source} (check)")
        without = {one.path for one in bad}
        kept = [(file, label) for file, label in zip(listing.files, listing.labels) if file not in without]
        names = [listing.class_names[label] for _, label in kept]
        paths = [Path(os.path.abspath(file)) for file, _ in kept]
        usable = set(names)
        return FoundSamples(
            listing.source,
            [SampleRef(name, path, sha256) for name, path, sha256 in zip(names, paths, _hashes(paths), strict=True)],
            (*found.problems, *bad),
            found.notes,
            tuple(name for name in found.classes if name not in usable),
            found.files,
        )

    def read(self, samples: Sequence[SampleRef]) -> np.ndarray:
        """uint8, N x size x size x C."""
        return decode([one.path for one in samples], size=self.size, colour=self.colour, resize=self.resize)

    def unchanged(self, samples: Sequence[SampleRef]) -> list[SampleRef]:
        existing = [one for one in samples if one.path.is_file()]
        hashes = _hashes([one.path for one in existing])
        return [one for one, found in zip(existing, hashes, strict=True) if one.sha256 == found]

    def label(self, sample: SampleRef) -> str:
        return str(sample.path)


def _hashes(paths: Sequence[Path]) -> list[str]:
    """The hash of each file, in threads: hashing releases the interpreter lock."""
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        return list(pool.map(sha256_of, paths))


def median_side(files: Sequence[Path], most: int = 100) -> int | None:
    """Median of the shorter sides of the images in pixels, by the headers of at most about ``most`` of them."""
    sides = []
    for file in files[:: max(1, len(files) // most)]:
        with Image.open(file) as image:
            sides.append(min(image.size))
    return median_low(sides) if sides else None


def find_images(source: Path, split_folders: bool | None) -> FoundImages:
    """The image files of a folder or CSV file with their classes; none is opened."""
    if any(unicodedata.category(letter) == "Cs" for letter in os.path.abspath(source)):
        raise HoldfastError(f"{printable(source)}: its path is not valid Unicode; rename the folder or those above it")
    if source.is_dir():
        return find_in_folders(source, split_folders=split_folders)
    if source.suffix.lower() == ".csv":
        return find_in_csv(source)
    if not source.exists():
        raise HoldfastError(f"{source}: no such folder or CSV file")
    wanted = "a folder with one folder per class or a CSV file of path,label"
    if holds_vectors(source):
        raise HoldfastError(f"{source}: holds vectors, and this model takes images; give {wanted}")
    raise HoldfastError(f"{source}: not {wanted}; vectors are npz or parquet files")


@dataclass(frozen=True)
class VectorRows:
    """Reads vectors from npz or parquet files.

    features, labels: names of the two arrays or columns.
    width: numbers in each vector; None accepts any.
    """

    noun: ClassVar[str] = "vector"

    features: str
    labels: str
    width: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return 1, 1, self.width or 0

    def find(self, source: Path, split_folders: bool | None = None) -> FoundSamples:
        """All vectors of a file. ``split_folders`` is for folders and has no effect."""
        if source.suffix.lower() not in VECTOR_SUFFIXES:
            raise HoldfastError(f"{source}: this model takes vectors; give an npz or parquet file of them")
        rows, classes, splits = self._read(source)
        kept = rows_of_split(splits, ALL if splits is None else "train", len(rows), source)
        path, names = source.absolute(), classes.astype(str)
        return FoundSamples(source, [SampleRef(str(names[row]), path, _row_hash(rows[row])) for row in kept])

    def read(self, samples: Sequence[SampleRef]) -> np.ndarray:
        """float32, N x 1 x 1 x D: a vector is an image of one pixel. Rows are found by their content."""
        found: dict[tuple[Path, str], np.ndarray] = {}
        for path in dict.fromkeys(one.path for one in samples):
            found.update({(path, _row_hash(row)): row for row in self._read(path)[0]})
        missing = [one.path for one in samples if (one.path, one.sha256) not in found]
        if missing:
            raise HoldfastError(f"{missing[0]}: {counted(len(missing), 'vector')} changed while being read")
        vectors = [found[one.path, one.sha256] for one in samples]
        return np.stack(vectors)[:, None, None, :] if vectors else np.zeros((0, *self.shape), np.float32)

    def unchanged(self, samples: Sequence[SampleRef]) -> list[SampleRef]:
        existing: set[tuple[Path, str]] = set()
        for path in dict.fromkeys(one.path for one in samples if one.path.is_file()):
            with contextlib.suppress(HoldfastError):  # a file without these arrays has other content
                rows, _, _ = read_labelled(path, self.features, self.labels)
                existing.update((path, _row_hash(row)) for row in rows)
        return [one for one in samples if (one.path, one.sha256) in existing]

    def label(self, sample: SampleRef) -> str:
        return f"{sample.path}#{sample.sha256[:16]}"

    def _read(self, file: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        rows, classes, splits = read_labelled(file, self.features, self.labels)
        if self.width is not None and rows.shape[1] != self.width:
            raise HoldfastError(f"{file}: vectors of {rows.shape[1]} numbers, but the model takes {self.width}")
        return rows, classes, splits


def _row_hash(row: np.ndarray) -> str:
    return hashlib.sha256(row.tobytes()).hexdigest()


def holds_vectors(source: Path) -> bool:
    """Whether ``source`` is a file of vectors; folders and CSV files name images."""
    return source.suffix.lower() in VECTOR_SUFFIXES and not source.is_dir()


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
    if options.split_folders is not None and all(source.is_file() for source in sources):
        raise HoldfastError(
            f"{sources[0]}: --split-folders (split_folders in Python) is for folders, and this is a file; its column "
            "split chooses its rows; leave it out"
        )
    for source in sources:
        _refuse_inside(out, source)
    found = [reader.find(source, options.split_folders) for source in sources]
    problems = [problem for one in found for problem in one.problems]
    for note in (note for one in found for note in one.notes):
        on_event(RunWarning(note))
    listed = write_problems(problem_file(out), problems)
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


def _refuse_inside(out: Path, source: Path) -> None:
    """Refuse a model folder among the class folders: the next reading of ``source`` would take it for a class."""
    top, folder = Path(os.path.realpath(source)), Path(os.path.realpath(out))
    if not source.is_dir() or not folder.is_relative_to(top):
        return
    if not any(part.startswith(".") for part in folder.relative_to(top).parts):  # hidden folders are not read
        raise HoldfastError(f"{out}: inside {source}, where it would be read as a class; choose another --out")


def _skipped(found: FoundSamples, source: Path, listed: Path | None) -> str:
    count, lost = len(found.problems), found.lost_classes
    what = "1 file or folder" if count == 1 else f"{count:,} files or folders"
    where = f"list: {listed}" if listed else name_problems(found.problems, found.top)
    classes = f"{counted(len(lost), 'class')} {are(len(lost))} left out, because none of its images can be used"
    without = f"; {classes}: {first_few(lost, 10)}" if lost else ""
    return f"{source}: skipped {what} that cannot be used ({where}){without}"


def held_out_mask(samples: Sequence[SampleRef], share: float, already: Collection[str]) -> np.ndarray:
    """Which samples are held out from training: N booleans, about ``share`` of them.

    already: hashes that an earlier version held out; they stay held out.

    The choice depends on the content of each sample alone, so a sample that comes again with a later version is on the
    same side. At least one sample of every class is trained on.
    """
    position = np.array([int(one.sha256[:8], 16) / 16**8 for one in samples])
    before = np.array([one.sha256 in already for one in samples], dtype=bool)
    held = (position < share) | before
    _, classes = np.unique([one.class_name for one in samples], return_inverse=True)
    by_class = np.lexsort((position, classes))
    released = set()
    for rows in np.split(by_class, np.flatnonzero(np.diff(classes[by_class])) + 1):
        if len(rows) and held[rows].all() and not before[rows].any():
            released.add(samples[int(rows[-1])].sha256)
    return held & np.array([one.sha256 not in released for one in samples], dtype=bool)  # with all its copies


def short_hashes(samples: Iterable[SampleRef]) -> np.ndarray:
    """The first 64 bits of each sample's hash, sorted and each once: enough to recognise a sample, in little space."""
    return np.unique(np.array([int(one.sha256[:16], 16) for one in samples], dtype=np.uint64))


def known_mask(samples: Sequence[SampleRef], hashes: np.ndarray) -> np.ndarray:
    """Which samples are among ``hashes`` (``short_hashes``): N booleans."""
    return np.isin(np.array([int(one.sha256[:16], 16) for one in samples], dtype=np.uint64), hashes)


def distinct(samples: Sequence[SampleRef], earlier: Sequence[SampleRef] = ()) -> list[SampleRef]:
    """Each content once, without the contents of ``earlier``: a query that is also stored would find itself."""
    seen = {one.sha256 for one in earlier}
    found: list[SampleRef] = []
    for one in samples:
        if one.sha256 not in seen:
            seen.add(one.sha256)
            found.append(one)
    return found


def unique_labels(reader: Reader, samples: Sequence[SampleRef]) -> list[str]:
    """The name of each sample in a report. A path that was used again for other content is followed by its hash."""
    labels = [reader.label(one) for one in samples]
    times = Counter(labels)
    return [f"{label}#{one.sha256[:16]}" if times[label] > 1 else label for label, one in zip(labels, samples)]


def refuse_one_class(samples: Sequence[SampleRef], source: Path) -> None:
    """Refuse data of a single class: every answer would be right, and training would learn nothing."""
    names = {one.class_name for one in samples}
    if len(names) == 1:
        raise HoldfastError(
            f"{source}: has one class only, {names.pop()!r}, and a model learns by telling classes apart; give two or "
            "more, each as a folder or a label of its own"
        )


def nested_classes(samples: Sequence[SampleRef], top: Path) -> str | None:
    """A warning if classes hold folders of images but no images: ``top`` may be one level too high.

    One folder of the same name in each class (``images``, for example) gives no warning.
    """
    if not top.is_dir():
        return None
    inside: defaultdict[str, set[str]] = defaultdict(set)
    for one in samples:
        _, *folders, _ = one.path.relative_to(os.path.abspath(top)).parts
        inside[one.class_name].add(folders[0] if folders else "")
    nested = sorted(name for name, found in inside.items() if "" not in found)
    deeper = sorted({folder for name in nested for folder in inside[name]})
    if len(deeper) < 2:
        return None
    which = f"{len(nested)} of {counted(len(inside), 'class')} ({first_few(nested)}) {have(len(nested))}"
    only = f"no images directly inside, only folders of images ({first_few(deeper)})"
    advice = f"if these folders are the classes, the data folder is one level too high: try {top / nested[0]}"
    return f"{which} {only}, and each counts as one class; {advice}"


def equal_looking_classes(samples: Sequence[SampleRef], known: Collection[str]) -> str | None:
    """A warning if two class names differ only in how their letters are encoded, as after a move from macOS to Linux.

    known: class names of the model before.
    """
    spellings: defaultdict[str, set[str]] = defaultdict(set)
    for name in {*known, *(one.class_name for one in samples)}:
        spellings[unicodedata.normalize("NFC", name)].add(name)
    twice = sorted(name for name, found in spellings.items() if len(found) > 1)
    if not twice:
        return None
    names = first_few([repr(name) for name in twice])
    return f"class names look equal and are encoded differently ({names}): they count as different classes"


def single_sample_classes(samples: Sequence[SampleRef], known: Collection[str]) -> str | None:
    """A warning if classes that are not ``known`` come with one sample each, which cannot be held out as well."""
    contents: defaultdict[str, set[str]] = defaultdict(set)
    for one in samples:
        contents[one.class_name].add(one.sha256)
    single = sorted(name for name, found in contents.items() if len(found) == 1 and name not in known)
    if not single:
        return None
    examples = "has a single example" if len(single) == 1 else "have a single example each"
    named = first_few([repr(name) for name in single], 5)
    return (
        f"{len(single)} of {counted(len(contents), 'class')} {examples} ({named}): "
        "it is trained on, so no version can be checked on these classes until more examples come"
    )


def in_several_classes(reader: Reader, samples: Sequence[SampleRef], earlier: Iterable[SampleRef]) -> str | None:
    """A warning if samples of the same content are in several classes, of which a model can find one at most.

    earlier: the replayed and held-out samples of the versions before, which keep their classes.
    """
    classes: defaultdict[str, set[str]] = defaultdict(set)
    for one in (*earlier, *samples):
        classes[one.sha256].add(one.class_name)
    found = [one for one in distinct(samples) if len(classes[one.sha256]) > 1]
    if not found:
        return None
    label, names = reader.label(found[0]), first_few([repr(name) for name in sorted(classes[found[0].sha256])])
    which = f"{counted(len(found), reader.noun)} {are(len(found))} in several classes, here or in earlier versions"
    return f"{which}, such as {label} ({names}): a model finds one of these classes at most; keep it in one"
