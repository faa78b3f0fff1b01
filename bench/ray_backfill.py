"""A backfill on Ray whose worker processes are killed: every item once, with the vectors of an undisturbed backfill.

    python bench/ray_backfill.py [--items 20000] [--kills 3] [--side 32] [--cpus 2] [--shard-items 1000] [--folder DIR]
                                 [--json FILE]

A gallery of --items made-up images of --side x --side pixels with two versions, small convolutional networks. All items
are in the first version. Three copies of it are backfilled to the second version: in this process, on a Ray cluster of
--cpus CPUs that is started for it, and on such a cluster while --kills of its worker processes get SIGKILL, at equal
parts of the way, by turns one that embeds and one that decodes. A process is chosen while it works, if there is one.

Then the stored vectors of the copies are compared by id, and the items are counted in both versions.
"""

import argparse
import contextlib
import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from timing import write_figures

from holdfast import Encoder, Gallery, Preprocess, build_backbone, embed_shards
from holdfast.core.environment import describe
from holdfast.embedders.on_ray import ray_cluster
from holdfast.gallery import reembed
from holdfast.gallery.item_files import ShardFolder

COPIES = ("here", "ray", "ray_killed")
KINDS = ("EmbedBatches", "_decode_shard")
WAIT_S = 10.0
"""A process that works is looked for so long; then an idle one is killed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A backfill on Ray whose workers are killed.")
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--side", type=int, default=32, help="pixels of a side of an image")
    parser.add_argument("--cpus", type=int, default=2, help="CPUs of the Ray cluster")
    parser.add_argument("--shard-items", type=int, default=reembed.SHARD_ITEMS, help="items of a task of Ray")
    parser.add_argument("--folder", type=Path, help="where everything goes; a temporary folder by default")
    parser.add_argument("--json", help="also write the figures to this file")
    options = parser.parse_args()
    reembed.SHARD_ITEMS = options.shard_items
    environment, load = describe("cpu"), os.getloadavg()
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.folder))
    try:
        make_gallery(folder, options)
        found = measure(folder, options)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{environment['processor']}; load before the start: {load[0]:.1f}")
    for name in COPIES:
        row = found["copies"][name]
        print(f"{name:10} {row['moved']} moved in {row['seconds']:.1f} s; versions hold {row['items_by_version']}")
    for kill in found["killed"]:
        print(f"killed at {kill['moved']} items: {kill['process']}, {'at work' if kill['busy'] else 'idle'}")
    print(f"every item once: {found['every_item_once']}; the same bits as without kills: {found['same_as_ray']}")
    print(f"largest difference from the backfill in this process: {found['largest_difference_from_here']:.1e}")
    if options.json:
        write_figures(options.json, "ray_backfill", environment, options, load=load, **found)


def make_gallery(folder: Path, options: argparse.Namespace) -> None:
    """Images, two models, and a gallery whose items are all in the first version; they are added as shards."""
    rng = np.random.default_rng(0)
    for row in range(options.items):
        file = folder / "images" / f"{row // 1000:03d}" / f"{row:06d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (options.side, options.side, 3), dtype=np.uint8)).save(file)
    for seed, name in enumerate(("old", "new")):
        torch.manual_seed(seed)
        preprocess = Preprocess(size=options.side, mean=(0.5,) * 3, std=(0.25,) * 3)
        network = build_backbone("small", in_channels=3, width=16)
        Encoder(network, preprocess=preprocess).save_pretrained(folder / name)
    embed_shards(folder / "old", folder / "images", folder / "shards", labels=False)
    with Gallery.create(folder / "gallery", folder / "old", mode="exact", device="cpu") as gallery:
        gallery.add(ShardFolder(folder / "shards").items(embed=False), version=1)
        gallery.register(folder / "new", bridge="none")


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    import ray

    rows: dict[str, dict[str, Any]] = {}
    vectors: dict[str, np.ndarray] = {}
    kills: list[dict[str, Any]] = []
    for name in COPIES:
        shutil.copytree(folder / "gallery", folder / name)
        if name != "here":
            os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
            ray.init(num_cpus=options.cpus, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        try:
            with Gallery.open(folder / name, device="cpu") as gallery:
                times = kills if name == "ray_killed" else None
                done = backfill(gallery, on_ray=name != "here", kills=times, options=options)
                rows[name], vectors[name] = done, stored_vectors(gallery)
        finally:
            ray.shutdown()
    once = all(row["items_by_version"] == {"1": 0, "2": options.items} for row in rows.values())
    once = once and all(len(found) == options.items for found in vectors.values())
    return {
        "copies": rows,
        "killed": kills,
        "ray_version": ray.__version__,
        "every_item_once": once and all(row["vectors_by_version"] == row["items_by_version"] for row in rows.values()),
        "same_as_ray": bool(np.array_equal(vectors["ray_killed"], vectors["ray"])),
        "largest_difference_from_here": float(np.abs(vectors["ray_killed"] - vectors["here"]).max()),
    }


def backfill(
    gallery: Gallery, *, on_ray: bool, kills: list[dict[str, Any]] | None, options: argparse.Namespace
) -> dict[str, Any]:
    moved = [0]
    ended = threading.Event()
    killer = threading.Thread(target=kill_workers, args=(moved, kills, ended, options))
    if kills is not None:
        killer.start()

    def progress(state: Any) -> None:
        moved[0] = state.progress.moved

    started = time.perf_counter()
    try:
        if on_ray:
            with ray_cluster("auto"):
                done = gallery.backfill_on_ray("auto", probes=0, progress=progress)
        else:
            done = gallery.backfill(probes=0, progress=progress)
    finally:
        ended.set()
        if kills is not None:
            killer.join()
    seconds = time.perf_counter() - started
    stats = gallery.stats()["versions"]
    return {
        "moved": done.progress.moved,
        "unreadable": done.progress.unreadable,
        "changed": done.progress.changed,
        "seconds": seconds,
        "items_per_s": done.progress.moved / seconds,
        "items_by_version": {str(row["version"]): row["items"] for row in stats},
        "vectors_by_version": {str(row["version"]): row["vectors"] for row in stats},
    }


def stored_vectors(gallery: Gallery) -> np.ndarray:
    """The vectors of the newest version, by id."""
    state = gallery._state
    version = gallery.newest()
    by_key = {}
    for keys, vectors in state.engine.scan(version.collection):
        by_key.update(zip((int(key) for key in keys), vectors, strict=True))
    ids = {}
    for start in range(0, len(by_key), 500):
        found, _ = state.catalogue.by_key(list(by_key)[start : start + 500])
        ids.update({item.id: key for key, item in found.items()})
    return np.stack([by_key[ids[name]] for name in sorted(ids)])


def kill_workers(
    moved: list[int], kills: list[dict[str, Any]], ended: threading.Event, options: argparse.Namespace
) -> None:
    """Kill a worker process each time another part of the items has moved."""
    for number in range(options.kills):
        wanted = options.items * (number + 1) // (options.kills + 1)
        while moved[0] < wanted and not ended.wait(0.01):
            pass
        found = find_worker(KINDS[number % len(KINDS)], ended)
        if found is None:
            return
        process, title, busy = found
        os.kill(process, signal.SIGKILL)
        kills.append({"moved": moved[0], "process": title, "busy": busy})
        while not ended.is_set() and Path(f"/proc/{process}").exists():
            ended.wait(0.01)


def find_worker(kind: str, ended: threading.Event) -> tuple[int, str, bool] | None:
    """Process, title and whether it works, of a worker of this process's cluster; one of any kind if need be."""
    until = time.monotonic() + WAIT_S
    while not ended.is_set():
        found = workers()
        for _ in range(100):  # looking at all processes takes longer than some tasks
            for process, _ in found:
                title = title_of(process)
                # While it runs a task the title of an actor ends with the name of a method.
                if kind in title and (kind == "_decode_shard" or title.endswith(".submit")):
                    return process, title, True
            ended.wait(0.002)
        if found and time.monotonic() > until:
            return (*found[0], False)
    return None


def title_of(process: int) -> str:
    """The title of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def workers() -> list[tuple[int, str]]:
    """Worker processes below this one: process number and title."""
    parents, titles = {}, {}
    for process in (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            parents[process] = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
            titles[process] = title_of(process)

    def is_below(process: int) -> bool:
        while process in parents and process != 1:
            process = parents[process]
            if process == os.getpid():
                return True
        return False

    kinds = {number: title for number, title in titles.items() if title.startswith("ray::Map")}
    return [(number, title) for number, title in sorted(kinds.items()) if is_below(number)]


if __name__ == "__main__":
    main()
