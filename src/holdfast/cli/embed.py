"""``holdfast embed``: a model and images or vectors in, a file or a folder of vectors with ids and labels out."""

import time
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.options import JSON_OPTION
from holdfast.cli.progress import ProgressDisplay, exit_on_interrupt
from holdfast.cli.show import print_json, say
from holdfast.core.wording import counted

if TYPE_CHECKING:
    from holdfast.embedders.embed_in_memory import Embedded
    from holdfast.embedders.embed_shards import EmbeddedShards


def embed(
    model: str = typer.Argument(..., metavar="MODEL", help="The folder of a model."),
    sources: list[str] = typer.Argument(
        ..., metavar="SOURCE", help="A folder of images, image files, a table (CSV, parquet), or a file of vectors."
    ),
    out: str = typer.Option(..., "--out", help="File to write (.npz or .parquet), or a folder for shards."),
    dtype: str = typer.Option("float32", "--dtype", help="float32 or float16 (half the size)."),
    skip_unreadable: bool = typer.Option(
        False, "--skip-unreadable", help="Leave out what cannot be read, and list it in a CSV file."
    ),
    device: str = typer.Option("auto", "--device", help="auto, cpu, cuda or cuda:N; for shards also cuda:0,cuda:1."),
    processes: int | None = typer.Option(None, "--processes", min=1, help="For shards, on the CPU: processes."),
    ray: str | None = typer.Option(None, "--ray", metavar="ADDRESS", help="For shards: a Ray cluster, or auto."),
    json: bool = JSON_OPTION,
) -> None:
    """Embed images or vectors with a model, for check, bridge and gallery.

    An image's id is its path below SOURCE, as in "gallery add". Labels are the names of class folders, if all images
    are in such folders. A CSV file has the columns path and perhaps label and id. A parquet file has a column path or
    bytes, and perhaps label and id. A model that takes vectors reads them from .npz, .npy or .parquet.

    The file holds vectors of length 1, ids, labels and the hash of the model's weights. Images of a folder are sorted
    by id; other sources keep their order.

    A folder gets shards: parquet files of that kind, for any number of items. Run the same command to resume. Several
    GPUs are used by a process each. --ray embeds on a Ray cluster; auto is the one on this machine, or a new one.
    SOURCE, paths in tables and a folder OUT may be in an object store, such as s3://bucket/photos.parquet.

    Example: holdfast embed models/2 photos/ --out new.npz

    Example: holdfast embed models/2 photos.parquet --out shards/ --device cuda
    """
    from pathlib import Path

    from holdfast.core.errors import HoldfastError
    from holdfast.core.locations import is_address, local_path, suffix
    from holdfast.vectors.feature_files import check_writable

    folder = {"processes": processes, "ray": ray}
    shown = ProgressDisplay("embed", quiet=json)
    if suffix(out) == "" or out.endswith("/") or local_path(out).is_dir() or is_address(out):
        if suffix(out) in (".npz", ".parquet"):
            raise HoldfastError(f"--out {out}: in an object store, a folder of shards is written; name a folder")
        if ray is not None and (device != "auto" or processes is not None):
            raise HoldfastError("--ray uses the cluster's devices; leave out --device and --processes")
        record = _to_folder(
            model, sources, out, shown, dtype=dtype, device=device, skip_unreadable=skip_unreadable, **folder
        )
    else:
        check_writable(Path(out), dtype)
        for name, value in folder.items():
            if value is not None:
                raise HoldfastError(f"--{name.replace('_', '-')} goes with shards; give a folder as --out")
        record = _to_file(model, sources, Path(out), shown, dtype=dtype, device=device, skip_unreadable=skip_unreadable)
    if json:
        print_json(record)
    else:
        _print(record)


def _to_file(model: str, sources: list[str], out: Any, shown: ProgressDisplay, **options: Any) -> dict[str, Any]:
    from holdfast.core.problems import problem_file
    from holdfast.embedders.embed_in_memory import embed as embed_source
    from holdfast.vectors import write_features

    dtype, began = options.pop("dtype"), time.monotonic()
    with exit_on_interrupt("nothing was written; run the same command again"), shown:
        found = embed_source(model, sources, problem_list=problem_file(out), progress=shown.count, **options)
    write_features(out, found.features, dtype=dtype)
    return _file_record(out, found, dtype, time.monotonic() - began)


def _to_folder(model: str, sources: list[str], out: str, shown: ProgressDisplay, **options: Any) -> dict[str, Any]:
    from holdfast.embedders.embed_shards import embed_shards

    began, processes = time.monotonic(), options.pop("processes") or 1
    with exit_on_interrupt(), shown:
        found = embed_shards(model, sources, out, processes=processes, progress=shown.count, **options)
    return _folder_record(found, time.monotonic() - began)


def _file_record(out: Any, found: "Embedded", dtype: str, seconds: float) -> dict[str, Any]:
    from holdfast.core.problems import problem_file

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


def _folder_record(found: "EmbeddedShards", seconds: float) -> dict[str, Any]:
    from holdfast.core.locations import join
    from holdfast.embedders.embed_shards import UNREADABLE

    manifest = found.manifest
    return {
        "folder": found.folder,
        "shards": manifest.shards,
        "written": found.written,
        "vectors": found.vectors,
        "dim": manifest.dim,
        "dtype": manifest.dtype,
        "labels": manifest.labels,
        "model": manifest.model,
        "skipped": [one.below(None) for one in found.skipped],
        "list": join(found.folder, UNREADABLE) if found.skipped else None,
        "seconds": seconds,
    }


def _print(record: dict[str, Any]) -> None:
    vectors = f"{counted(record['vectors'], 'vector')} of {counted(record['dim'], 'number')} ({record['dtype']})"
    if "folder" in record:
        labels = "with labels" if record["labels"] else "no labels"
        shards = f"{counted(record['shards'], 'shard')}, {record['written']} of them written now"
        say(f"{record['folder']}: {vectors}, {labels}; {shards}")
    else:
        classes = record["classes"]
        labels = "no labels" if classes is None else f"labels of {counted(classes, 'class')}"
        rate = f"{record['vectors'] / max(record['seconds'], 1e-9):,.0f} a second"
        say(f"{record['file']}: {vectors}, {labels}; {rate}")
    if record["skipped"]:
        say(f"{counted(len(record['skipped']), 'item')} skipped (list: {record['list']})")
