"""Each verb: what it prints, what it writes, and the shapes of its JSON."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from holdfast.core.environment import DISTRIBUTION, version
from holdfast.train.data import DATASETS
from holdfast.train.encoders import BACKBONES, Encoder
from holdfast.train.experiments.load import builtin_recipes
from holdfast.train.methods import METHODS

PROTOCOL_KEYS = {"AC", "AA", "ACA", "AC_tau", "AA_tau", "matrix"}


def protocol_shape(protocol, tasks):
    assert protocol.keys() >= PROTOCOL_KEYS
    assert 0 <= protocol["AA"] <= 1
    assert len(protocol["AC_tau"]) == len(protocol["AA_tau"]) == len(protocol["matrix"]) == tasks
    assert protocol["AC_tau"][0] is None
    for t, row in enumerate(protocol["matrix"]):
        assert [cell is None for cell in row] == [k > t for k in range(tasks)]
        assert all(0 <= cell <= 1 for cell in row[: t + 1])


def test_version(holdfast):
    assert holdfast("--version") == f"holdfast {version('holdfast-index')}\n"


@pytest.mark.parametrize(
    ("kind", "known"),
    [("methods", METHODS), ("backbones", BACKBONES), ("datasets", DATASETS), ("recipes", dict(builtin_recipes()))],
)
def test_ls(kind, known, holdfast, holdfast_json):
    rows = holdfast_json("ls", kind)
    names = [row["name"] for row in rows]
    assert names[: len(known)] == list(known)
    text = holdfast("ls", kind)
    assert all(name in text for name in names)
    assert all(row["about"] for row in rows)


def test_ls_shows_options_with_the_names_recipes_use(holdfast_json):
    (row,) = [row for row in holdfast_json("ls", "methods") if row["name"] == "simplex_hoc"]
    assert "lambda=0.1" in row["options"]


def test_ls_says_which_method_is_ours(holdfast, holdfast_json):
    rows = holdfast_json("ls", "methods")
    assert [row["name"] for row in rows if row["origin"] == "ours"] == ["simplex_hoc_views", "cosine_hoc"]
    assert holdfast("ls", "methods").count("origin: ours") == 2


def test_run_folder(tiny_run):
    assert {path.name for path in tiny_run.iterdir() if not path.name.startswith(".")} == {
        "recipe.toml",
        "environment.json",
        "log.jsonl",
        "models",
        "features",
        "metrics.json",
    }
    assert sorted(path.name for path in (tiny_run / "models").iterdir()) == ["01", "02", "03"]
    metrics = json.loads((tiny_run / "metrics.json").read_text())
    assert metrics["method"] == "simplex_hoc"
    assert metrics["protocols"].keys() == {"template", "instance"}
    for protocol in metrics["protocols"].values():
        protocol_shape(protocol, 3)
    assert [(task["new_classes"], task["seen_classes"]) for task in metrics["tasks"]] == [(2, 2), (2, 4), (2, 6)]
    assert all(task["steps"] > 0 for task in metrics["tasks"])
    assert metrics["data"]["open_set"] is True
    assert metrics["data"]["train"]["images"] == 48
    assert Encoder.from_pretrained(tiny_run / "models" / "03").dim == 5
    assert tomllib.loads((tiny_run / "recipe.toml").read_text())["train"]["momentum"] == 0.9  # defaults written out
    assert json.loads((tiny_run / "environment.json").read_text())["device"] == "cpu"


def test_run_with_settings(holdfast, holdfast_json, tiny_recipe, tmp_path):
    words = ["run", tiny_recipe, "--out", tmp_path / "run", "--device", "cpu", "--set", "method.name=er"]
    printed = holdfast_json(*words, "--set", "evaluation.protocols=['template']", "--set", "train.epochs=1")
    assert printed["run"] == str(tmp_path / "run")
    assert printed["method"] == "er"
    assert printed["protocols"].keys() == {"template"}
    protocol_shape(printed["protocols"]["template"], 3)
    text = holdfast(*words, "--set", "evaluation.protocols=['template']", "--set", "train.epochs=1")
    assert "er, protocol" in text
    assert "metrics.json" in text


def test_run_chooses_a_folder(holdfast, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    holdfast("run", tiny_recipe, "--set", "train.epochs=1", "--set", "seed=5")
    assert (tmp_path / "runs" / "tiny-simplex_hoc-t3-s5" / "metrics.json").is_file()


def test_resuming_a_finished_run_keeps_its_numbers(holdfast_json, tiny_recipe, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    models = {file: file.stat().st_mtime_ns for file in (folder / "models").rglob("*.safetensors")}
    printed = holdfast_json("run", tiny_recipe, "--out", folder, "--device", "cpu")
    assert printed["protocols"] == json.loads((tiny_run / "metrics.json").read_text())["protocols"]
    assert models == {file: file.stat().st_mtime_ns for file in (folder / "models").rglob("*.safetensors")}


def test_evaluate(holdfast, holdfast_json, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    printed = holdfast_json("evaluate", folder, "--scores", "top5,mAP")
    assert printed["run"] == str(folder)
    for name, protocol in printed["protocols"].items():
        protocol_shape(protocol, 3)
        assert protocol["matrix"] == json.loads((tiny_run / "metrics.json").read_text())["protocols"][name]["matrix"]
        assert protocol["extras"].keys() == {"top5", "mAP"}
        for t, k in ((0, 0), (2, 1)):
            assert protocol["matrix"][t][k] <= protocol["extras"]["top5"][t][k] <= 1
            assert 0 <= protocol["extras"]["mAP"][t][k] <= 1
    # Three classes have three templates: five answers cannot miss.
    assert printed["protocols"]["template"]["extras"]["top5"][2] == [1.0, 1.0, 1.0]
    written = json.loads((folder / "metrics.json").read_text())
    assert written["protocols"] == printed["protocols"]
    text = holdfast("evaluate", folder, "--scores", "top5, mAP")
    assert "mAP %" in text
    assert "Self-tests, template" in text


def test_doctor(holdfast, holdfast_json, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    checks = {check["name"]: check for check in holdfast_json("doctor")}
    assert all(check.keys() == {"name", "state", "found"} for check in checks.values())
    assert checks["holdfast"]["found"].startswith(f"{version(DISTRIBUTION)}, Python ")
    assert checks["torch"]["state"] == checks["glyphs"]["state"] == checks["cpu"]["state"] == "ok"
    assert checks["cifar100"]["state"] == "missing"
    (tmp_path / "cifar100.npz").touch()
    assert "cifar100" in holdfast("doctor")
    checks = {check["name"]: check for check in holdfast_json("doctor")}
    assert checks["cifar100"]["state"] == "ok"
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path / "none"))
    assert "does not exist" in " ".join(holdfast("doctor").split())


def test_doctor_looks_for_every_extra(holdfast_json, tmp_path):
    """Whatever the extras list but for development; an installed name may differ from the module's."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {name: needs for name, needs in project["optional-dependencies"].items() if name != "dev"}
    packages = {re.match(r"[\w-]+", need)[0] for needs in listed.values() for need in needs} - {"holdfast-index"}
    modules = {"qdrant-edge-py": "qdrant_edge", "qdrant-client": "qdrant_client"}
    modules |= {
        "prometheus-client": "prometheus_client",
        "pillow-heif": "pillow_heif",
        "pillow": "PIL",
        "tomli-w": "tomli_w",
    }
    checks = {check["name"] for check in holdfast_json("doctor")}
    assert {modules.get(name, name) for name in packages} <= checks


def test_doctor_fails_when_something_is_broken(holdfast, monkeypatch):
    monkeypatch.setattr("holdfast.core.environment.version", lambda name: None)
    assert "BROKEN" in holdfast("doctor", status=1)


def test_doctor_imports_nothing_heavy(tmp_path):
    code = (
        "import sys; sys.argv = ['holdfast', 'doctor']; from holdfast.cli import doctor, main\n"
        "doctor._may_have_gpu = lambda: False\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(({*doctor.EXTRAS, 'scipy'} - {'PIL', 'pydantic'}) & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stderr.strip() == ""


def test_doctor_without_the_extra_train(holdfast_json, monkeypatch, tmp_path):
    from holdfast.cli import doctor

    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name in ("torch", "timm") else name)
    checks = {check["name"]: check for check in holdfast_json("doctor")}
    assert checks["torch"] == {
        "name": "torch", "state": "missing", "found": "for models that embed images, and training: not installed"
    }  # fmt: skip
    assert checks["timm"]["state"] == checks["cuda"]["state"] == checks["data sets"]["state"] == "missing"
    assert "pip install '.[train]'" in checks["data sets"]["found"]


def test_evaluate_keeps_scores_asked_for_earlier(holdfast_json, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    holdfast_json("evaluate", folder, "--scores", "mAP")
    later = holdfast_json("evaluate", folder, "--scores", "top5")
    assert set(later["protocols"]["template"]["extras"]) == {"mAP", "top5"}


def test_resuming_a_finished_run_keeps_what_evaluate_added(holdfast_json, tiny_recipe, tiny_run, tmp_path):
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    before = holdfast_json("evaluate", folder, "--scores", "mAP")
    after = holdfast_json("run", tiny_recipe, "--out", folder, "--device", "cpu")
    assert after == before


def test_a_terminal_without_unicode(process, command, tiny_run):
    found = process("check-history", tiny_run, PYTHONIOENCODING="latin-1")
    assert "Traceback" not in found.stderr
    assert found.returncode in (0, 1)
    assert command("check-history", tiny_run, "--json").stdout.isascii()


def test_help_shows_defaults(holdfast):
    text = " ".join(holdfast("run", "--help").split())
    assert "runs/RECIPE-METHOD-tTASKS" in text
    assert "$HOLDFAST_DATA, else ./data" in text


def test_help_shows_every_verb_in_one_section(holdfast):
    from typer.main import get_command

    from holdfast.cli import SECTIONS, app

    shown = [name for names in SECTIONS.values() for name in names]
    commands = get_command(app).commands
    assert sorted(shown) == sorted(name for name, command in commands.items() if not command.hidden)
    text = holdfast("--help")
    assert all(f"{title}:" in text for title in SECTIONS)
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_help_of_every_verb_has_an_example():
    from typer.main import get_command

    from holdfast.cli import SECTIONS, app

    commands = get_command(app).commands
    verbs = {name: commands[name] for names in SECTIONS.values() for name in names}
    alone = {name: verb for name, verb in verbs.items() if not hasattr(verb, "commands")}
    grouped = {
        f"{name} {inner}": command
        for name, group in verbs.items()
        for inner, command in getattr(group, "commands", {}).items()
        if not command.hidden
    }
    assert len(alone) >= 12
    assert len(grouped) >= 12
    every = alone | grouped
    assert not [name for name, verb in every.items() if "Example: holdfast" not in verb.help.replace("\n", " ")]
