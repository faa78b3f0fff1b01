"""Embed shards on a Ray cluster by Ray Data: CPU tasks load and decode batches, actors embed them.

Ray schedules the work, and runs it again if a worker or a machine is lost. Vectors come back to this process, which
puts the batches of a shard together. A batch is therefore counted once, however often it was computed, and the place
that is written to need not be reachable from the workers. The model's files are sent to them; images are read by them.
"""

import json
import logging
import os
import pickle
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, first_line, how_to_install
from holdfast.core.wording import counted
from holdfast.embedders.batches import EmbeddedItems, ItemBatch, batch_ranges, embed_batches, stack_batch
from holdfast.embedders.image_encoder import ImageEncoder
from holdfast.embedders.model_folder import CONFIG_FILE, WEIGHTS_FILE
from holdfast.embedders.model_inputs import ModelInput
from holdfast.embedders.processes import Embedded, ShardWork
from holdfast.embedders.source_items import Items, decode


def _import_ray() -> Any:
    try:
        import ray
        import ray.data
        import ray.exceptions
    except ImportError:
        raise HoldfastError(f"--ray needs Ray; {how_to_install('ray')}") from None
    return ray


@contextmanager
def ray_cluster(address: str) -> Iterator["RayCluster"]:
    """A connection to a Ray cluster.

    address: ``auto`` is the cluster that runs on this machine or, if there is none, one that is started here and ends
        with the block; else the address of a cluster, such as ``10.0.0.5:6379`` or ``ray://head:10001``. A connection
        that this process has already is used as it is.
    """
    ray = _import_ray()
    if ray.is_initialized():
        yield RayCluster(ray, _gpus(ray))
        return
    # The driver of Ray Data warns of restarts that cannot fail here. Workers keep their logs.
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    try:
        ray.init(address=address, **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        if address != "auto":
            raise HoldfastError(f"--ray {address}: no connection to this cluster ({first_line(error)})") from error
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(include_dashboard=False, **options)
    try:
        yield RayCluster(ray, _gpus(ray))
    finally:
        ray.shutdown()


def _gpus(ray: Any) -> int:
    return int(ray.cluster_resources().get("GPU", 0))


@dataclass(frozen=True)
class RayCluster:
    """A connected cluster.

    ray: the module.
    gpus: GPUs of the cluster.
    """

    ray: Any
    gpus: int

    @property
    def device(self) -> str:
        """The kind of device that its actors embed on."""
        return "cuda" if self.gpus else "cpu"

    def embed(self, work: ShardWork, taken: ModelInput, on_items: Callable[[int], None]) -> Iterator[Embedded]:
        """Embed the shards, in any order; see ``processes.embed_in_processes``."""
        ray = self.ray
        sizes = {number: len(items) for number, items in work.shards}
        collected: dict[int, _Collected] = {}
        done: set[int] = set()
        try:
            model = ray.put(_model_files(work.model))  # kept until the end: an actor that is started again reads it
            dataset = self._dataset(work, taken, model)
            for table in dataset.iter_batches(batch_size=None, batch_format="pyarrow"):
                for row in table.to_pylist():
                    number = row["shard"]
                    if number in done:
                        continue
                    one = collected.setdefault(number, _Collected(sizes[number]))
                    on_items(one.add(row))
                    if one.complete:
                        done.add(number)
                        yield number, collected.pop(number).embedded()
        except ray.exceptions.RayError as error:
            raise _explained(error) from error
        if len(done) < len(sizes):
            raise HoldfastError(
                f"Ray returned {len(done)} of {counted(len(sizes), 'shard')}; finished ones are kept: "
                "run the same command again"
            )

    def _dataset(self, work: ShardWork, taken: ModelInput, model: Any) -> Any:
        """The dataset of embedded batches; nothing is computed before it is read.

        model: a reference to the model's files.
        """
        import pyarrow

        ray = self.ray
        tables = [
            pyarrow.table({"shard": [number], "items": pyarrow.array([pickle.dumps(items)], pyarrow.binary())})
            for number, items in work.shards
        ]
        source = ray.data.from_arrow(tables)
        source.context.enable_progress_bars = False
        source.context.print_on_execution_start = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        # Half a CPU where actors need CPUs too: tasks and actors with equal needs would be run as one by Ray.
        decoded = source.map_batches(
            _decode_shard,
            fn_args=(taken, work.batch_size),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1 if self.gpus else 0.5,
        )
        actors = ray.data.ActorPoolStrategy(min_size=1, max_size=self.gpus or max(1, cpus - 1))
        return decoded.map_batches(
            EmbedBatches,
            fn_constructor_args=(model, self.device),
            batch_size=None,
            batch_format="pyarrow",
            compute=actors,
            **({"num_gpus": 1} if self.gpus else {"num_cpus": 1}),
        )


@dataclass
class _Collected:
    """The batches of one shard that have arrived.

    count: items of the shard.
    """

    count: int
    parts: dict[int, tuple[np.ndarray, dict[int, str]]] = field(default_factory=dict)

    def add(self, row: dict[str, Any]) -> int:
        """Add a batch; its number of items, 0 if it was there already."""
        if row["start"] in self.parts:
            return 0
        vectors = np.frombuffer(row["vectors"], np.float32).reshape(row["count"], -1)
        self.parts[row["start"]] = vectors, {int(place): text for place, text in json.loads(row["reasons"]).items()}
        return int(row["count"])

    @property
    def complete(self) -> bool:
        return sum(len(vectors) for vectors, _ in self.parts.values()) == self.count

    def embedded(self) -> EmbeddedItems:
        starts = sorted(self.parts)
        reasons = {start + row: text for start in starts for row, text in self.parts[start][1].items()}
        return EmbeddedItems(np.concatenate([self.parts[start][0] for start in starts]), reasons)


def _decode_shard(table: Any, taken: ModelInput, batch_size: int) -> Iterator[Any]:
    """A task: the decoded batches of shards. The same shard always gives the same batches."""
    import pyarrow

    for row in table.to_pylist():
        items: Items = pickle.loads(row["items"])  # made by ``_dataset``
        for start, stop in batch_ranges(len(items), batch_size):
            loaded = items.part(start, stop).load()
            batch = stack_batch(taken, (decode(taken, item) for item in loaded))
            yield pyarrow.table(
                {
                    "shard": [row["shard"]],
                    "start": [start],
                    "count": [stop - start],
                    "inputs": pyarrow.array([batch.inputs.tobytes()], pyarrow.large_binary()),
                    "reasons": [json.dumps(batch.reasons)],
                }
            )


class EmbedBatches:
    """An actor: embeds decoded batches.

    model: a reference to the model's files.
    device: ``cuda`` or ``cpu``.
    """

    def __init__(self, model: Any, device: str) -> None:
        with tempfile.TemporaryDirectory(prefix="holdfast-model-") as folder:
            for name, data in _import_ray().get(model).items():
                (Path(folder) / name).write_bytes(data)
            self._encoder = ImageEncoder.load(folder, device)

    def __call__(self, table: Any) -> Iterator[Any]:
        import pyarrow

        for row in table.to_pylist():
            found = embed_batches(self._encoder, row["count"], iter([self._batch(row)]))
            yield pyarrow.table(
                {
                    "shard": [row["shard"]],
                    "start": [row["start"]],
                    "count": [row["count"]],
                    "vectors": pyarrow.array([found.vectors.tobytes()], pyarrow.large_binary()),
                    "reasons": [json.dumps(found.reasons)],
                }
            )

    def _batch(self, row: dict[str, Any]) -> ItemBatch:
        taken = self._encoder.input
        reasons = {int(place): text for place, text in json.loads(row["reasons"]).items()}
        data = bytearray(row["inputs"])  # torch warns of memory that cannot be written to
        numbers = np.frombuffer(data, np.float32 if taken.takes_vectors else np.uint8)
        return ItemBatch(numbers.reshape(row["count"], *taken.array_shape), reasons)


def _model_files(folder: Path) -> dict[str, bytes]:
    """The model's files by name."""
    return {name: (folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE) if (folder / name).exists()}


def _explained(error: BaseException) -> HoldfastError:
    """The error of a task in one line. An error of Holdfast arrives as a line of the task's traceback."""
    text = str(error).strip() or type(error).__name__
    own = re.search(r"^(?:[\w.]+\.)?HoldfastError: (.+)$", text, re.MULTILINE)
    if own is not None:
        return HoldfastError(own[1])
    return HoldfastError(f"Ray: {text.splitlines()[-1][:300]}; finished shards are kept: run the same command again")
