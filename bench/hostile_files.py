"""Hostile files of every format that Holdfast reads: how many are refused in one line, and what else happens.

    python bench/hostile_files.py [--files 1000] [--seed 0] [--seconds 5] [--formats model,npz] [--case N]
                                  [--for SECONDS] [--folder DIR] [--json FILE]

A hostile file is a valid one after a mutation (``file_mutations.py``): flipped bits, cut, bytes inserted, deleted and
swapped, huge numbers in headers, deep nesting, other values and types in a file that stays well formed, a pipe, a
socket, a link or a folder in its place. It is opened as a user would, by the Python API or the command line, in a
process of its own with a limit of memory. A file is accepted, or refused by one line. Everything else is a failure: a
traceback, an error that is not one clear line, more than --seconds, a crash, or more than 2 GB in the process.

A case is repeated by --seed and --case. --for continues with new seeds for so many seconds and prints the seed of each
failure. The exit status is 1 after a failure.
"""

import argparse
import contextlib
import json
import os
import pickle
import random
import re
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: its threads would not be there in a forked process

import numpy as np
import torch
from file_mutations import copy, mutate
from PIL import Image
from timing import write_figures

import holdfast.cli
from holdfast import Bridge, Encoder, Gallery, Preprocess, build_backbone, load_split, run_recipe
from holdfast.checks.judgements import read_judgements
from holdfast.core.environment import describe
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Item
from holdfast.train.experiments.load import find_recipe, read_recipe
from holdfast.train.experiments.schema import check_recipe
from holdfast.vectors.feature_files import read_features, write_features
from holdfast.vectors.feature_set import feature_set

MEMORY = 2 * 2**30
LONGEST_LINE = 2000
GOOD = ("accepted", "refused")
SMALL_RUN = [
    "scenario.initial=2", "scenario.tasks=2", "backbone.width=4", "train.epochs=1", "data.train.train_classes=4",
    "data.train.per_class_train=4", "data.query.per_class_query=4", "data.gallery.per_class_gallery=4",
    *(f"data.{split}.test_classes=2" for split in ("train", "query", "gallery")),
]  # fmt: skip
IMAGES = ("png", "jpg", "webp", "gif", "bmp", "tif")


class Format(NamedTuple):
    """What is copied for a case, which of its files can be made hostile, and how it is opened.

    files: globs below ``unit``.
    ways: called with the copy and the folder of the valid files.
    """

    unit: str
    files: tuple[str, ...]
    ways: tuple[Callable[[Path, Path], object], ...]


class Outcome(NamedTuple):
    kind: str
    text: str
    seconds: float
    processor_s: float
    peak_bytes: int


def command(*words: str | Path) -> None:
    """A verb of the command line. Its error must be one line on stderr."""
    sys.argv = ["holdfast", *map(str, words)]
    with tempfile.TemporaryFile("w+") as errors:
        with contextlib.redirect_stderr(errors):
            try:
                holdfast.cli.main()
                return
            except SystemExit as ended:
                status = ended.code
        errors.seek(0)
        printed = errors.read()
    if status and printed:  # check says its verdict by its status
        raise HoldfastError(printed.removesuffix("\n"))


def open_model(folder: Path, valid: Path) -> None:
    encoder = Encoder.from_pretrained(folder)
    encoder.encode([Image.open(valid / "images" / "a" / "1.png")])


def open_features(path: Path, valid: Path) -> None:
    found = read_features(path, "gallery")
    found.rows.block(0, 1000)


def check_features(path: Path, valid: Path) -> None:
    command("check", "--gallery", valid / "old.npz", "--queries-old", valid / "old.npz", "--queries-new", path,
            "--json")  # fmt: skip


def fit_bridge(path: Path, valid: Path) -> None:
    command("bridge", "--new", path, "--old", valid / "old.npz", "--out", path.parent / "made", "--json")


def open_gallery(folder: Path, valid: Path) -> None:
    with Gallery.open(folder, device="cpu") as gallery:
        gallery.search(vector=np.arange(1.0, 33.0), k=5)
        gallery.search(vector=np.arange(1.0, 33.0), k=5, filter={"price": {"gte": 3}})
        gallery.get(["1", "2"])
        gallery.add([Item("new", vector=np.arange(1.0, 33.0)), Item("p", path=valid / "images" / "a" / "1.png")])
        gallery.delete(["3"])
        gallery.stats()


def use_bridge(folder: Path, valid: Path) -> None:
    bridge = Bridge.load(folder)
    bridge(np.ones((2, 16), np.float32))
    bridge.summary()


def open_images(folder: Path, valid: Path) -> None:
    load_split("folder", "train", folder.parent, path=folder.name, size=32)


FORMATS = {
    "model config": Format("model", ("config.json",), (
        open_model,
        lambda at, valid: command("embed", at, valid / "images", "--out", at.parent / "out.npz", "--json"),
    )),
    "model weights": Format("model", ("model.safetensors",), (
        open_model,
        lambda at, valid: command("gallery", "create", at.parent / "new", "--model", at),
    )),
    "npz": Format("new.npz", ("",), (open_features, check_features, fit_bridge)),
    "npz, compressed": Format("small.npz", ("",), (open_features, check_features)),
    "npy": Format("arrays", ("*.npy",), (
        lambda at, valid: open_features(at / "new.npy", valid),
        lambda at, valid: check_features(at / "new.npy", valid),
    )),
    "parquet": Format("new.parquet", ("",), (open_features, check_features)),
    "json lines": Format("new.jsonl", ("",), (open_features,)),
    "csv of vectors": Format("vectors.csv", ("",), (open_features,)),
    "datasets": Format("dataset", ("*",), (open_features,)),
    "judgements": Format("qrels.tsv", ("",), (lambda at, valid: read_judgements(at),)),
    "recipe": Format("recipe.toml", ("",), (lambda at, valid: check_recipe(read_recipe(str(at))),)),
    "CIFAR pickles": Format("data", ("cifar-10-batches-py/*",), (
        lambda at, valid: load_split("cifar10", "train", at),
        lambda at, valid: load_split("cifar10", "test", at),
    )),
    "CIFAR archive": Format("packed", ("*",), (lambda at, valid: load_split("cifar10", "test", at),)),
    "npz of images": Format("pack", ("*",), (lambda at, valid: load_split("cifar10", "train", at),)),
    "image": Format("images", ("*/*",), (
        open_images,
        lambda at, valid: command("embed", valid / "model", at, "--out", at.parent / "out.npz", "--json"),
        lambda at, valid: command("embed", valid / "model", at, "--out", at.parent / "out.npz", "--skip-unreadable",
                                  "--json"),
    )),
    "table": Format("table.csv", ("",), (
        lambda at, valid: command("embed", valid / "model", at, "--out", at.parent / "out.npz", "--json"),
    )),
    "gallery catalogue": Format("gallery", ("catalogue.sqlite",), (open_gallery,)),
    "gallery versions": Format("gallery", ("versions/*/*", "versions/*/model/*"), (open_gallery,)),
    "gallery segments": Format("gallery", ("vectors/**/*",), (open_gallery,)),
    "bridge": Format("bridge", ("*",), (use_bridge,)),
    "run folder": Format("run", ("**/*",), (
        lambda at, valid: command("evaluate", at, "--json"),
        lambda at, valid: command("check-history", at, "--json"),
    )),
}  # fmt: skip


def build(folder: Path) -> None:
    """The valid files."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    for kind in ("a", "b"):
        (folder / "images" / kind).mkdir(parents=True)
        for number, suffix in enumerate(IMAGES, 1):
            pixels = draw.integers(0, 256, (40, 48, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / kind / f"{number}.{suffix}")
    preprocess = Preprocess(size=16, mean=(0.2,), std=(0.3,), colour="grey")
    Encoder(build_backbone("small", width=8), 59, preprocess=preprocess).save_pretrained(folder / "model")
    old = draw.standard_normal((60, 16), np.float32)
    labels, ids = np.arange(60) % 6, [f"item {n}" for n in range(60)]
    new = old @ np.linalg.qr(draw.standard_normal((16, 16)))[0].astype(np.float32)
    np.savez(folder / "old.npz", features=old, labels=labels, ids=ids)
    np.savez(folder / "new.npz", features=new, labels=labels, ids=ids)
    np.savez_compressed(folder / "small.npz", features=new, labels=labels, ids=ids)
    (folder / "arrays").mkdir()
    for name, array in {"new": new, "new.labels": labels, "new.ids": np.array(ids)}.items():
        np.save(folder / "arrays" / f"{name}.npy", array)
    with contextlib.suppress(HoldfastError):  # without pyarrow there is no such format
        write_features(folder / "new.parquet", feature_set("new", new, labels=labels, ids=ids))
        write_dataset(folder / "dataset", {"id": ids, "vector": new.tolist(), "label": labels.tolist()})
    rows_of = [{"id": name, "vector": row.tolist(), "label": int(label)} for name, row, label in zip(ids, new, labels)]
    (folder / "new.jsonl").write_text("\n".join(map(json.dumps, rows_of)))
    cells = [f'{row["id"]},"{row["vector"]}",{row["label"]}' for row in rows_of]
    (folder / "vectors.csv").write_text("\n".join(["id,vector,label", *cells]))
    judged = [f"q{n}\t{name}\t{n % 3}" for n, name in enumerate(ids)]
    (folder / "qrels.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
    shutil.copy(find_recipe("demo"), folder / "recipe.toml")
    Bridge.fit(new=new, old=old).save(folder / "bridge")
    rows = draw.integers(0, 256, (12, 3072), dtype=np.uint8)
    batches = folder / "data" / "cifar-10-batches-py"
    batches.mkdir(parents=True)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (batches / name).write_bytes(pickle.dumps({b"data": rows, b"labels": [0, 1, 2] * 4}, protocol=2))
    (batches / "batches.meta").write_bytes(pickle.dumps({b"label_names": [b"a", b"b", b"c"]}, protocol=2))
    (folder / "packed").mkdir()
    shutil.make_archive(str(folder / "packed" / "cifar-10-python"), "gztar", folder / "data", "cifar-10-batches-py")
    (folder / "pack").mkdir()
    images = rows.reshape(12, 32, 32, 3)
    np.savez(folder / "pack" / "cifar10.npz", train_x=images, train_y=np.arange(12) % 3, class_names=["a", "b", "c"])
    paths = [f"{folder}/images/{kind}/{number}.{suffix}" for kind in "ab" for number, suffix in enumerate(IMAGES, 1)]
    (folder / "table.csv").write_text("path,label,id\n" + "".join(f"{path},a,{n}\n" for n, path in enumerate(paths)))
    with Gallery.create(folder / "gallery", folder / "model", device="cpu") as gallery:
        gallery.add(Item(str(n), vector=row, metadata={"price": n}) for n, row in enumerate(np.eye(32) + 0.1))
        gallery.build_index()
        gallery.add(Item(f"late {n}", vector=row) for n, row in enumerate(np.eye(32) + 0.2))
    run_recipe("demo", folder / "run", SMALL_RUN, device="cpu")


def write_dataset(folder: Path, columns: dict[str, list[Any]]) -> None:
    """As Hugging Face ``datasets`` saves one."""
    import pyarrow

    folder.mkdir()
    table = pyarrow.table(columns)
    file = str(folder / "data-00000-of-00001.arrow")
    with pyarrow.OSFile(file, "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table, max_chunksize=25)
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))


def in_a_process(work: Callable[[], object], seconds: float) -> Outcome:
    """``work`` in a forked process with a limit of memory and time."""
    reading, writing = os.pipe()
    begun = time.monotonic()
    process = os.fork()
    if process == 0:
        status = 1
        try:
            os.close(reading)
            os.setpgid(0, 0)
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1)
            os.dup2(quiet, 2)
            with open("/proc/self/statm", encoding="ascii") as file:
                mapped = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + 2 * MEMORY,) * 2)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.write(writing, json.dumps(tried(work)).encode()[:60_000])
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with contextlib.suppress(OSError):
        os.setpgid(process, process)
    ready, _, _ = select.select([reading], [], [], seconds)
    answer = b""
    if ready:
        while block := os.read(reading, 2**16):
            answer += block
    took = time.monotonic() - begun
    os.close(reading)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)  # also what it has started itself
    _, status, used = os.wait4(process, 0)
    if not ready:
        kind, text = "hang", f"not done within {seconds:g} s"
    elif not answer:
        kind, text = "crash", f"wait status {status}"
    else:
        kind, text = json.loads(answer)
    peak = used.ru_maxrss * 1024
    if kind in GOOD and peak > MEMORY:
        kind, text = "memory", f"{peak / 2**30:.1f} GB"
    return Outcome(kind, text, took, used.ru_utime + used.ru_stime, peak)


def tried(work: Callable[[], object]) -> tuple[str, str]:
    try:
        work()
    except HoldfastError as error:
        line = str(error)
        clear = line.strip() and "\n" not in line and len(line) <= LONGEST_LINE and line.isprintable()
        return ("refused" if clear else "unclear"), line[:LONGEST_LINE]
    except BaseException:
        return "traceback", traceback.format_exc()[-4000:]
    return "accepted", ""


def same_order(path: Path) -> tuple[str, int]:
    """Sorts files in the same way each time: the store gives its segments random names."""
    return re.sub(r"[0-9a-f-]{36}", "", str(path)), path.stat().st_size


def attack(valid: Path, name: str, number: int, options: argparse.Namespace) -> tuple[str, Outcome]:
    """Case ``number``: copy, mutate and open. What was done to which file, and what happened."""
    draw = random.Random(f"{options.seed}/{number}")
    shape = FORMATS[name]
    with tempfile.TemporaryDirectory(prefix="case-", dir=valid.parent) as place:
        made = copy(valid / shape.unit, Path(place) / shape.unit)
        files = [made] if shape.files == ("",) else [path for one in shape.files for path in made.glob(one)]
        paths = sorted((path for path in files if path.is_file() and path.name != "README.md"), key=same_order)
        path = draw.choice(paths)
        what = f"{path.relative_to(place)}: {mutate(path, draw)}"
        way = shape.ways[draw.randrange(len(shape.ways))]
        os.chdir(place)
        try:
            return what, in_a_process(lambda: way(made, valid), options.seconds)
        finally:
            os.chdir("/")


def one_seed(valid: Path, formats: list[str], options: argparse.Namespace, until: float) -> dict[str, Any]:
    """All cases of a seed, by format; a failure is printed at once."""
    found: dict[str, list[Outcome]] = {name: [] for name in formats}
    failures = []
    names = list(FORMATS)  # of all formats: a case is the same if others are left out
    for number in range(options.files) if options.case is None else [options.case]:
        if time.monotonic() > until:
            break
        name = names[number % len(names)]
        if name not in formats:
            continue
        what, outcome = attack(valid, name, number, options)
        found[name].append(outcome)
        if outcome.kind not in GOOD:
            last = outcome.text.strip().splitlines()[-1][:300] if outcome.text.strip() else ""
            failures.append({"seed": options.seed, "case": number, "format": name, "file": what,
                             "kind": outcome.kind, "last_line": last})  # fmt: skip
            print(f"seed {options.seed}, case {number}, {name}, {what}: {outcome.kind}: {last}", flush=True)
        if options.case is not None:
            print(what, *outcome, sep="\n")
    return {"found": found, "failures": failures}


def rows_of(found: dict[str, list[Outcome]]) -> list[dict[str, Any]]:
    rows = []
    for name, outcomes in found.items():
        counts = Counter(one.kind for one in outcomes)
        kinds = ("accepted", "refused", "traceback", "unclear", "hang", "crash", "memory")
        rows.append(
            {
                "format": name,
                "files": len(outcomes),
                **{kind: counts[kind] for kind in kinds},
                "longest_s": max((one.seconds for one in outcomes), default=0.0),
                "most_processor_s": max((one.processor_s for one in outcomes), default=0.0),
                "peak_mb": max((one.peak_bytes for one in outcomes), default=0) / 2**20,
            }
        )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    print(f"{'format':18} files refused accepted failed  longest   peak")
    for row in rows:
        failed = row["files"] - row["refused"] - row["accepted"]
        print(f"{row['format']:18} {row['files']:5} {row['refused']:7} {row['accepted']:8} {failed:6}"
              f" {row['longest_s']:6.2f} s {row['peak_mb']:4.0f} MB")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Hostile files of every format.")
    parser.add_argument("--files", type=int, default=1000, help="cases of each seed, over all formats in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=5, help="what takes longer is a hang")
    parser.add_argument("--formats", help="only these, by the beginnings of their names, with commas")
    parser.add_argument("--case", type=int, help="only this case, with all that it said")
    parser.add_argument("--for", dest="go_on", type=float, help="go on with new seeds for so many seconds")
    parser.add_argument("--folder", type=Path, help="where the files are made; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    if options.json:
        options.json = Path(options.json).resolve()  # cases change the working folder
    environment, load = describe("cpu"), os.getloadavg()
    print(f"{environment['processor']}, one process; load before the start: {load[0]:.1f}")
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        valid = folder / "valid"
        valid.mkdir()
        made = in_a_process(lambda: build(valid), 300)  # in a process: this one must not start threads
        if made.kind != "accepted":
            raise SystemExit(f"the valid files could not be made: {made.text}")
        wanted = options.formats.split(",") if options.formats else [""]
        formats = [name for name in FORMATS if (valid / FORMATS[name].unit).exists() and name.startswith(tuple(wanted))]
        print("valid files: ", end="")
        opened = [in_a_process(lambda way=way, shape=shape: way(copy_of(valid, shape), valid), 60)
                  for shape in map(FORMATS.get, formats) for way in shape.ways]  # fmt: skip
        bad = [one for one in opened if one.kind != "accepted"]
        print(f"{len(opened) - len(bad)} of {len(opened)} accepted, at most {max(one.seconds for one in opened):.2f} s")
        if bad:
            raise SystemExit("valid files were not accepted:\n" + "\n".join(one.text[-300:] for one in bad))
        until = time.monotonic() + (options.go_on or float("inf"))
        total, failures, seeds = {name: [] for name in formats}, [], []
        while True:
            part = one_seed(valid, formats, options, until)
            seeds.append(options.seed)
            failures += part["failures"]
            for name, outcomes in part["found"].items():
                total[name] += outcomes
            if options.go_on is None or time.monotonic() > until:
                break
            options.seed += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows = rows_of(total)
    show(rows)
    print(f"{sum(row['files'] for row in rows)} files, seeds {seeds[0]} to {seeds[-1]}: {len(failures)} failures")
    if options.json:
        write_figures(options.json, "hostile_files", environment, options, load_before=load, rows=rows,
                      failures=failures)  # fmt: skip
    sys.exit(1 if failures else 0)


def copy_of(valid: Path, shape: Format) -> Path:
    return copy(valid / shape.unit, Path(tempfile.mkdtemp(prefix="copy-", dir=valid.parent)) / shape.unit)


if __name__ == "__main__":
    main()
