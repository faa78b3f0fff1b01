"""``holdfast embed``: a model and images or vectors in, a file of vectors with ids and labels out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, QUIET_OPTION
from holdfast.cli.progress import CountProgress, exit_on_interrupt
from holdfast.cli.show import print_json, say
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.evaluation import Embedded


def embed(
    model: Path = typer.Argument(..., metavar="MODEL", help="The folder of a model."),
    sources: list[Path] = typer.Argument(
        ..., metavar="SOURCE", help="A folder of images, image files, a CSV file, or a file of vectors."
    ),
    out: Path = typer.Option(..., "--out", help="File to write: .npz or .parquet."),
    dtype: str = typer.Option("float32", "--dtype", help="float32 or float16 (half the size)."),
    no_labels: bool = typer.Option(False, "--no-labels", help="Write no labels."),
    skip_unreadable: bool = typer.Option(
        False, "--skip-unreadable", help="Leave out what cannot be read; OUT.unreadable.csv lists it."
    ),
    batch_size: int | None = typer.Option(
        None, "--batch-size", min=1, help="Items at a time.", show_default="by device and image size"
    ),
    device: str = DEVICE_OPTION,
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Embed images or vectors with a model, for check and bridge.

    An image's id is its path below SOURCE, as in "gallery add". Labels are the names of class folders, if all images
    are in such folders. A CSV file has the columns path and perhaps label and id. A model that takes vectors reads
    them from .npz, .npy or .parquet.

    The file holds vectors of length 1, ids, labels and the hash of the model's weights. Images of a folder are sorted
    by id; other sources keep their order.

    Example: holdfast embed models/2 photos/ --out new.npz
    """
    from holdfast.data.problems import problem_file
    from holdfast.devices import resolve_device
    from holdfast.evaluation import embed as embed_source
    from holdfast.evaluation import write_features
    from holdfast.evaluation.feature_files import check_writable

    check_writable(out, dtype)
    began = time.monotonic()
    with (
        exit_on_interrupt("nothing was written; run the same command again"),
        CountProgress("embed", quiet=quiet or json) as progress,
    ):
        found = embed_source(
            model,
            sources,
            labels=not no_labels,
            skip_unreadable=skip_unreadable,
            problem_list=problem_file(out),
            device=resolve_device(device),
            batch_size=batch_size,
            progress=progress,
        )
    write_features(out, found.features, dtype=dtype)
    record = _record(out, found, dtype, time.monotonic() - began)
    if json:
        print_json(record)
    else:
        _print(record)


def _record(out: Path, found: "Embedded", dtype: str, seconds: float) -> dict[str, Any]:
    from holdfast.data.problems import problem_file

    features = found.features
    return {
        "file": str(out),
        "vectors": len(features),
        "dim": features.dim,
        "dtype": dtype,
        "classes": None if features.labels is None else len(set(features.labels.tolist())),
        "model": features.model,
        "skipped": [one.below(None) for one in found.skipped],
        "list": str(problem_file(out)) if found.skipped else None,
        "seconds": seconds,
    }


def _print(record: dict[str, Any]) -> None:
    classes = record["classes"]
    labels = "no labels" if classes is None else f"labels of {counted(classes, 'class')}"
    rate = f"{record['vectors'] / max(record['seconds'], 1e-9):,.0f} a second"
    say(
        f"{record['file']}: {counted(record['vectors'], 'vector')} of {counted(record['dim'], 'number')} "
        f"({record['dtype']}), {labels}; {rate}"
    )
    if record["skipped"]:
        say(f"{counted(len(record['skipped']), 'file')} skipped (list: {record['list']})")
