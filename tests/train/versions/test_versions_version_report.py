"""``holdfast report`` over the folders of ``start`` and ``update``: the matrix, the record, the page, the errors."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.reports.versions_page import check_rows, exposure_rows, render_versions, version_rows
from holdfast.train.versions import report_versions


@pytest.fixture(scope="module")
def record(second):
    return report_versions([second], device="cpu")


def test_one_folder_stands_for_all_versions_before_it(record, first, second):
    assert [one["number"] for one in record["versions"]] == [1, 2]
    assert [one["name"] for one in record["versions"]] == ["1", "2"]
    history = record["history"]
    assert history["models"] == ["1", "2"]
    assert history["matrix"][0][1] is None
    assert history["gains"][1][0]["value"] == pytest.approx(
        history["matrix"][1][0]["value"] - history["matrix"][0][0]["value"]
    )
    assert history["queries"] + history["gallery"] == record["held_out"] == len(_held_out(second))
    assert report_versions([second, first], device="cpu") == record  # any order


def _held_out(folder):
    return json.loads((folder / "held_out.json").read_text())["images"]


def test_the_record_has_verdicts_and_exposure_of_every_update(record):
    newest = record["versions"][1]
    assert newest["parent"]["name"] == "1"
    assert [row[:2] for row in check_rows(record)] == [["2", "1"]] * len(newest["evidence"])
    assert {row[4] for row in check_rows(record)} == {one["verdict"] for one in newest["evidence"]}
    assert [row[:2] for row in exposure_rows(record)] == [["2", "1"]]
    assert [row[0] for row in version_rows(record)] == ["1", "2"]


def test_the_page(record):
    page = render_versions(record, "Letters <1>")
    assert "<h1>Letters &lt;1&gt;</h1>" in page
    for heading in ("Versions", "Model by model", "Checks made with each version", "How often older items are shown"):
        assert f"<h2>{heading}</h2>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_the_command_line(second, first, tmp_path):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["report", str(second), "--out", str(tmp_path / "r.html"), "--quiet"]
    )
    assert result.exit_code == 0, result.output
    assert "verdicts, oldest first" in result.output
    assert max(map(len, result.output.splitlines()[:-1])) <= 80
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    result = CliRunner(env={"COLUMNS": "80"}).invoke(
        app, ["report", str(first), str(second), "--json", "--out", str(tmp_path / "s.html")]
    )
    assert json.loads(result.stdout)["history"]["models"] == ["1", "2"]


def test_a_missing_version_is_named(second, tmp_path):
    alone = shutil.copytree(second, tmp_path / "2")
    with pytest.raises(HoldfastError, match=r"one version only; version 1 .* not shown: .* does not exist"):
        report_versions([alone], device="cpu")


def test_refused(first, second, tmp_path):
    with pytest.raises(HoldfastError, match="one version only"):
        report_versions([first], device="cpu")
    with pytest.raises(HoldfastError, match="is version 2, as is"):
        report_versions([second, second], device="cpu")
    with pytest.raises(HoldfastError, match="no model here"):
        report_versions([tmp_path], device="cpu")


@pytest.mark.parametrize(
    ("other", "message"),
    [("empty", "give only runs or only model folders"), ("nothing", "give only runs or only model folders")],
)
def test_a_folder_of_another_kind(other, message, second, tmp_path):
    (tmp_path / "empty").mkdir()
    result = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["report", str(second), str(tmp_path / other)])
    assert result.exit_code != 0
    assert message in str(result.exception)
