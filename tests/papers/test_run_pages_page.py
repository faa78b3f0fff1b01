"""The page: right cells marked, everything escaped, nothing fetched."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.core.errors import HoldfastError
from holdfast.metrics import compatibility_summary
from papers.run_pages import read_run, render, write_report
from papers.run_pages.__main__ import app

MATRIX = [[0.50, None, None], [0.50, 0.60, None], [0.55, 0.59, 0.70]]  # a tie, a pass, a failure


def made_run(folder, method="simplex_hoc", matrix=MATRIX, protocols=("template", "instance"), **more):
    folder.mkdir(parents=True, exist_ok=True)
    C = np.array(matrix, dtype=float)
    record = {**compatibility_summary(C), "matrix": matrix}
    record = json.loads(json.dumps(record).replace("NaN", "null"))
    value = {"method": method, "protocols": dict.fromkeys(protocols, record), **more}
    (folder / "metrics.json").write_text(json.dumps(value))
    return folder


def page_of(*folders, **options):
    return render([read_run(folder) for folder in folders], **options)


def matrices(page):
    """Every heat map as {(query model, gallery model): (classes, shown)}."""
    found = []
    for table in re.findall(r'<table class="heat">(.*?)</table>', page, re.S):
        cells = {}
        for t, row in enumerate(re.findall(r"<tr>(<th scope=\"row\".*?)</tr>", table, re.S), start=1):
            for k, (attributes, shown) in enumerate(re.findall(r"<td([^>]*)>(.*?)</td>", row), start=1):
                classes = re.search(r'class="([^"]*)"', attributes)
                cells[t, k] = (set(classes[1].split()) if classes else set(), re.sub("<.*?>", "", shown))
        found.append(cells)
    return found


def test_failing_cells_are_exactly_where_strict_greater_fails(tmp_path):
    rng = np.random.default_rng(0)
    C = np.tril(rng.integers(2, 8, (6, 6)) / 10)  # coarse, so that ties occur
    cells = matrices(page_of(made_run(tmp_path / "a", matrix=C.tolist())))[0]
    for t in range(6):
        for k in range(6):
            classes, shown = cells[t + 1, k + 1]
            assert ("fails" in classes) == (k < t and not C[t, k] > C[k, k])
            assert ("self" in classes) == (t == k)
            assert shown == (f"{100 * C[t, k]:.1f}" if k <= t else "")


def test_not_comparable_is_a_dash_and_no_failure(tmp_path):
    page = page_of(made_run(tmp_path / "a", matrix=[[0.5, None], [None, 0.7]]))
    assert matrices(page)[0][2, 1] == ({"unknown"}, "–")
    assert "<td>–</td>" in page  # AA and ACA are undefined
    assert "nan" not in re.sub(r"<style>.*?</style>", "", page, flags=re.S)


def test_everything_is_escaped(tmp_path):
    evil = '<script>alert("x")</script>'
    folder = made_run(
        tmp_path / "a", method=evil, tasks=[{"task": evil, evil: 1}], data={"train": {"fingerprint": evil, evil: evil}}
    )
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["protocols"][evil] = dict(metrics["protocols"]["template"], extras={evil: MATRIX})
    (folder / "metrics.json").write_text(json.dumps(metrics))
    (folder / "recipe.toml").write_text("name = '" + evil + "'\n['" + evil + "']\nx = ['" + evil + "']\n")
    (folder / "environment.json").write_text(json.dumps({evil: evil}))
    (folder / "log.jsonl").write_text('{"event": "epoch", "loss": 2}\n{"event": "epoch", "loss": 1}\n')
    page = page_of(folder, title=evil)
    assert "<script" not in page.lower()
    assert page.count("&lt;script&gt;") > 10


def test_nothing_outside_is_asked_for(tmp_path):
    page = page_of(made_run(tmp_path / "a"), made_run(tmp_path / "b", method="er"))
    assert "://" not in page
    assert not re.search(r"\b(src|href|srcset|action|data)\s*=", page)
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_write_report_is_one_file_and_needs_a_run(tmp_path):
    out = tmp_path / "pages" / "report.html"
    write_report([made_run(tmp_path / "a")], out, title="Caf\u00e9 \ud800")
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
    with pytest.raises(HoldfastError, match="at least one run"):
        write_report([], out)


def bridged_run(folder, evil=""):
    better = [[0.50, None, None], [0.58, 0.60, None], [0.62, 0.65, 0.70]]
    record = json.loads(json.dumps({**compatibility_summary(better), "matrix": better}).replace("NaN", "null"))

    def mixed(accuracy, first, tenth):
        versions = [
            {"model": k + 1, "share_of_gallery": 0.5, "share_of_hits": 0.5, "exposure": {"1": a, "10": b}}
            for k, (a, b) in enumerate(zip(first, tenth))
        ]
        return {"accuracy": [0.5, accuracy], "reindexed": [0.5, 0.9], "versions": versions}

    way = {"query_vectors": "bridged", "scores": f"scaled{evil}", **mixed(0.88, [0.93, None], [0.97, 1.02])}
    bridged = {
        "kind": f"rotation{evil}",
        "pairs": 1000,
        "protocols": {"template": record, "instance": record},
        "mixed": [way],
    }
    return made_run(folder, bridged=bridged, mixed=mixed(0.6, [0.01, 1.9], [0.05, 1.8]))


def test_bridged_scores_are_shown_beside_the_plain_ones(tmp_path):
    page = page_of(bridged_run(tmp_path / "a"))
    plain, bridged, *_ = matrices(page)
    assert plain[2, 1] == ({"fails"}, "50.0")
    assert bridged[2, 1] == (set(), "58.0")
    assert "bridged queries (rotation)</b> <span>3 of 3 compatible (AC-R)" in page
    assert page.count('class="first">AC-R</th>') == 2
    assert page.count('class="first">AC</th>') == 2
    assert "d-Simplex-HOC, rotation, 1,000 images" in page
    assert "It is not the AC of papers" in page
    assert "AC-R" not in page_of(made_run(tmp_path / "b"))


def test_bridged_records_are_escaped_and_checked(tmp_path):
    assert "<script>" not in page_of(bridged_run(tmp_path / "a", evil="<script>"))
    folder = made_run(tmp_path / "b", bridged={"kind": "rotation", "protocols": {"template": {"AC": 1}}})
    with pytest.raises(HoldfastError, match="bridged, protocol 'template' has no matrix"):
        read_run(folder)
    assert read_run(made_run(tmp_path / "c", bridged=3)).bridged is None


def test_the_command(tiny_run, tmp_path):
    page = tmp_path / "page.html"
    result = CliRunner().invoke(app, [str(tiny_run), str(tiny_run), "-o", str(page), "--title", "a <b> c"])
    assert str(page) in result.stdout
    assert "<title>a &lt;b&gt; c</title>" in page.read_text()
