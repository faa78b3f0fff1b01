"""``python -m papers.bridged_runs`` as a user sees it."""

import json
import re
import shutil

import pytest
from typer.testing import CliRunner

from holdfast.cli import app as holdfast_app
from holdfast.core.errors import HoldfastError
from papers.bridged_runs.__main__ import app
from papers.bridged_runs.command import print_mixed
from papers.run_pages import read_run, render


def output(program, *words):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(program, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def measured(*words):
    return output(app, *words)


def evaluated(run):
    """The run evaluated again with one more score, which the bridged matrices then have too."""
    return json.loads(output(holdfast_app, "evaluate", run, "--scores", "mAP", "--json"))


def test_a_run_with_bridges(tiny_run, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    plain = evaluated(run)
    found = json.loads(measured(run, "--bridge", "rotation", "--bridge-pairs", 12, "--json"))
    assert found["protocols"] == plain["protocols"]
    bridged = found["bridged"]
    assert (bridged["kind"], bridged["pairs"]) == ("rotation", 12)
    for name, protocol in bridged["protocols"].items():
        own = [row[t] for t, row in enumerate(protocol["matrix"])]
        assert own == [row[t] for t, row in enumerate(plain["protocols"][name]["matrix"])]
        beaten = [protocol["matrix"][t][k] > own[k] for t in range(3) for k in range(t)]
        assert protocol["AC"] == pytest.approx(sum(beaten) / 3)
        assert set(protocol["extras"]) == {"mAP"}
    assert evaluated(run)["bridged"] == bridged  # kept, like earlier extra scores
    text = measured(run, "--bridge", "auto", "--mixed", "--arrival", "by-class")
    assert "AC-R" in text
    assert "It is not the AC of the paper." in " ".join(text.split())
    assert re.search(r", affine \(ridge 0\.1\) [01]\.\d+", " ".join(text.split()))
    assert max(map(len, text.splitlines())) <= 80
    record = json.loads((run / "metrics.json").read_text())
    assert record["mixed"]["arrival"] == "by-class"
    ways = [(way["query_vectors"], way["scores"]) for way in record["bridged"]["mixed"]]
    assert ways[0] == ("plain", "scaled")
    page = render([read_run(run)])
    assert "AC-R" in page
    assert "bridged queries (" in page


def test_unknown_bridges_are_refused(tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.json").read_bytes()
    with pytest.raises(HoldfastError, match="kind of bridge"):
        measured(tmp_path / "run", "--bridge", "tunnel")
    with pytest.raises(HoldfastError, match="5 pairs are too few"):
        measured(tmp_path / "run", "--bridge", "auto", "--bridge-pairs", 5)
    assert (tmp_path / "run" / "metrics.json").read_bytes() == before


def test_a_mixed_gallery_that_cannot_be_compared_is_printed_too(capsys):
    nothing = {"model": 1, "share_of_gallery": 1.0, "share_of_hits": float("nan"), "score_offset": None}
    print_mixed({"accuracy": [None], "reindexed": [0.5], "versions": [nothing]})
    text = capsys.readouterr().out
    assert "accuracy – %; re-embedded: 50.00 %" in text
    assert ["1", "100.00", "–", "–", "–", "–"] in [line.split() for line in text.splitlines()]
