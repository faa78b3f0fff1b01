"""Two processes with half a batch each do what one does with all of it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from two_ranks import CASES, after_steps, glyphs, make_step

from holdfast.core.errors import HoldfastError
from holdfast.train.data.augment import BatchPart, augment
from holdfast.train.engine import FitOptions
from holdfast.train.engine.ranks import ALONE, BatchShard, Ranks, batch_shard
from holdfast.train.methods import Batch, Progress

ONE_PROCESS = [
    case for case in CASES if case.endswith(("-plain", "-lenet", "-small", "-streamed")) or case == "er-apart"
]


def together(*arguments):
    """(exit status, stderr) of two processes that are told of each other as torchrun would tell them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    command = [sys.executable, str(Path(__file__).with_name("two_ranks.py")), *arguments]
    processes = [
        subprocess.Popen(command, env={**common, "RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE, text=True)
        for rank in "01"
    ]
    try:
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, errors)]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for status, errors in together(str(folder)):
        assert status == 0, errors
    return [torch.load(folder / f"rank{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("case", ONE_PROCESS)
def test_two_ranks_do_what_one_process_does(case, two_ranks):
    """Every method, with features gathered; batch norm synchronised; ER also without gathering, a mean of means."""
    alone = after_steps(case, glyphs())
    for name, expected in alone.items():
        torch.testing.assert_close(two_ranks[0][case][name], expected, rtol=1e-4, atol=1e-5, msg=f"{case}: {name}")


@pytest.mark.parametrize("case", CASES)
def test_ranks_stay_equal(case, two_ranks):
    one, other = (found[case] for found in two_ranks)
    own = ("running", "num_batches") if "own-statistics" in case else ()
    for name in one:
        if not any(part in name for part in own):
            assert torch.equal(one[name], other[name]), name


def test_without_synchronised_batch_norm_statistics_differ(two_ranks):
    one, other = (found["er-small-own-statistics"] for found in two_ranks)
    assert any(not torch.equal(one[name], other[name]) for name in one if "running_mean" in name)


def test_apart_each_rank_has_its_own_negatives(two_ranks):
    """The first step's terms are the mean of what the loss says of each half."""
    step, _ = make_step("simplex_hoc-apart", glyphs())
    indices, replayed = step.batches[0], step.shard.replayed
    x = step._view(indices)
    z, z_old = step.encoder(x), step.old(x)
    zero = torch.zeros(())
    halves = []
    for rank in range(2):
        shard = BatchShard(Ranks(rank, 2), replayed, len(indices) - replayed, gather=False, device=torch.device("cpu"))
        rows = shard.local(torch.arange(len(indices)))
        batch = Batch(step.labels[indices[rows]], shard.replayed)
        halves.append(step.method.loss(z[rows], batch, z_old=z_old[rows], progress=Progress(zero, zero, 4)))
    expected = {name: (halves[0][name] + halves[1][name]) / 2 for name in halves[0]}
    whole = step.method.loss(z, Batch(step.labels[indices], replayed), z_old=z_old, progress=Progress(zero, zero, 4))
    assert abs(expected["nce"].item() - whole["nce"].item()) > 0.05  # fewer negatives, a smaller loss
    first = two_ranks[0]["simplex_hoc-apart-first"]
    torch.testing.assert_close(first, torch.stack(list(expected.values())).double().detach(), rtol=1e-5, atol=1e-6)


def test_shares_are_equal_parts_with_the_replayed_first():
    shards = [BatchShard(Ranks(rank, 3), 6, 9, gather=True, device=torch.device("cpu")) for rank in range(3)]
    rows = [shard.local(torch.arange(15)).tolist() for shard in shards]
    assert rows == [[0, 1, 6, 7, 8], [2, 3, 9, 10, 11], [4, 5, 12, 13, 14]]
    assert [shard.replayed for shard in shards] == [2, 2, 2]
    assert torch.cat([torch.tensor(r) for r in rows])[shards[0]._order].tolist() == list(range(15))


def test_augmentation_of_a_part_is_that_of_the_whole():
    images = torch.randint(0, 256, (10, 3, 8, 8), dtype=torch.uint8)
    rows = torch.tensor([1, 4, 5, 9])

    def augmented(of, part):
        return augment(of, crop_padding=2, flip=True, generator=torch.Generator().manual_seed(3), part=part)

    assert torch.equal(augmented(images, None)[rows], augmented(images[rows], BatchPart(rows, 10)))


def test_what_cannot_be_shared_is_refused(two_tasks):
    with pytest.raises(HoldfastError, match="task 2 has 3 new images, which 2 ranks cannot share"):
        batch_shard(two_tasks.tasks[1], FitOptions(batch_size=5), Ranks(0, 2), torch.device("cpu"))
    batch_shard(two_tasks.tasks[1], FitOptions(batch_size=5), ALONE, torch.device("cpu"))


def test_auto_is_eager_under_several_ranks():
    assert Ranks(0, 2).executor("auto") == "eager"
    assert Ranks(0, 2).executor("graph") == "graph"
    assert ALONE.executor("auto") == "auto"


@pytest.mark.slow
def test_when_one_rank_fails_the_other_stops(tmp_path):
    (status, errors), (other_status, other_errors) = together(str(tmp_path), "fail")
    assert other_status != 0
    assert "broken on purpose" in other_errors
    assert status != 0
    assert "rank 0 of 2: stopped, because another rank did" in errors


@pytest.mark.slow
def test_a_whole_run_with_torchrun(tiny_recipe, tiny_run, tmp_path):
    """From recipe to report; the same scores as one process, and the first rank alone writes.

    Weights agree to rounding, so at most one of the 12 queries may find another neighbour for one of the six pairs of
    models. Batch norm or negatives of each rank's own would move AA by five times as much.
    """
    from holdfast.core.storage import read_json

    launch = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", "-m", "holdfast", "run"]
    command = [sys.executable, *launch, str(tiny_recipe), "--out", str(tmp_path / "run"), "--json", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('"protocols"') == 1
    one, two = (read_json(run / "metrics.json") for run in (tiny_run, tmp_path / "run"))
    for protocol in ("template", "instance"):
        scores, alone = two["protocols"][protocol], one["protocols"][protocol]
        assert scores["AC"] == alone["AC"]
        assert scores["AA"] == pytest.approx(alone["AA"], abs=1 / (12 * 6) + 1e-9)
    assert [task["steps"] for task in two["tasks"]] == [task["steps"] for task in one["tasks"]]
    assert read_json(tmp_path / "run" / "environment.json")["ranks"] == 2
