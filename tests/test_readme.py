"""What the README tells a reader to type works."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_it_is_short():
    assert len(README.splitlines()) <= 140
    assert len(README.encode()) <= 9000


def test_there_is_code_to_run():
    assert PYTHON


def test_the_numbers_are_those_of_the_study():
    """The table is the one of docs/results/quarters.md, which another test compares with the results."""
    page = (ROOT / "docs/results/quarters.md").read_text(encoding="utf-8")
    unseen = page[page.index("## Whole network: unseen") : page.index("## Whole network: known")]
    replaced = page[page.index("## The network is replaced: whole") : page.index("## The network is replaced: head")]
    own, lags, grown = (table_after(unseen, start) for start in ("| last version", "| kept, %", "|  | recall@1"))
    networks = table_after(replaced, "|  | own recall@1")
    said = table_after(README, "| way of updating | after 1 update")
    assert said == {name: row for name, row in table_after(page, "| way of updating").items() if name in said}
    for name, strategy, training in (
        ("plain fine-tuning, old index", "plain, old index", "plain"),
        ("plain fine-tuning + bridge", "plain + bridge", "plain"),
        ("distillation + bridge", "distillation + bridge", "distillation"),
        ("Cosine-HOC + bridge", "Cosine-HOC + bridge", "Cosine-HOC"),
    ):
        assert said[name] == [
            lags[strategy][0], lags[strategy][3], grown[strategy][3], networks[strategy][2], own[training][0]
        ], name  # fmt: skip
    kept_old = [lags["never update"][0], lags["never update"][3], grown["never update"][3], networks["keep lite0"][2]]
    assert said["keep the old model"] == [*kept_old, grown["never update"][0]]
    shares = [[round(float(networks[name][at])) for at in (2, 3)] for name in ("plain + bridge", "keep lite0")]
    assert shares == [[92, 86], [91, 93]]  # in the box of limits
    assert said["re-embed everything"] == ["100.0"] * 4 + [own["plain"][0]]
    head = page[page.index("## Head on a frozen network: unseen") : page.index("## Head on a frozen network: known")]
    known = page[page.index("## Whole network: known") :]
    trained = table_after(known, "| kept, %")
    strategies = ("plain, old index", "plain + bridge", "distillation", "distillation + bridge")
    assert [round(float(trained[name][3])) for name in strategies] == [79, 79, 78, 78]
    assert table_after(known, "| last version")["distillation"][3] == "-1.49"
    kept = table_after(head, "| kept, %")
    assert all(float(share) >= 100 for name in ("plain, old index", "plain + bridge") for share in kept[name][:4])


def test_the_limits_of_training_alone_are_those_of_table_2():
    table = (ROOT / "docs/results/table2.md").read_text(encoding="utf-8").split("\n## ")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    by_instance = {row[0]: float(row[-1].split()[0]) for row in rows if row[1] == "d-Simplex-HOC"}
    shares = [f"{100 * by_instance[tasks]:.0f} %" for tasks in ("16", "31")]
    assert f"kept {shares[0]} of version pairs compatible over 15 updates and {shares[1]} over 30" in README


def table_after(text, start):
    """The table whose header begins with ``start``: first cell -> the other cells, without deviations and seeds."""
    lines = text[text.index(start) :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip().split("±")[0] for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].split(" (n = ")[0]: row[1:] for row in rows}


@pytest.mark.parametrize("code", PYTHON)
def test_python(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may save a model
    exec(compile(code, "README.md", "exec"), {})


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The reader's files: a new model whose vectors are those of the old one, rotated. Returns a function of labels."""
    rng = np.random.default_rng(0)
    labels = np.arange(800) % 20
    old = rng.standard_normal((20, 16))[labels] + 0.5 * rng.standard_normal((800, 16))
    new = old @ np.linalg.qr(rng.standard_normal((16, 16)))[0]
    ids, stored, queries = np.arange(800).astype(str), slice(0, 400), slice(400, 800)
    monkeypatch.chdir(tmp_path)

    def write(labelled):
        def save(name, features, rows, with_labels=labelled):
            own = {"labels": labels[rows]} if with_labels else {}
            np.savez(name, features=features[rows], ids=ids[rows], **own)

        save("index.npz", old, stored)
        save("sample.npz", new, slice(0, 300), with_labels=False)
        save("other.npz", new, slice(300, 400), with_labels=False)
        save("old.npz", old, queries)
        save("new.npz", new, queries)

    return write


def run(line, status=0):
    found = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert found.exit_code == status, (line, found.output)
    return found.output


@pytest.mark.parametrize("labelled", [True, False])
def test_the_first_commands_on_two_files(labelled, files):
    """The bridge is found and the check passes; without labels nothing is judged."""
    files(labelled)
    commands = re.findall(r"^holdfast (?:bridge|check) .*", README, re.MULTILINE)
    assert [line.split()[1] for line in commands] == ["bridge", "check"]
    run(commands[0], status=3)  # check judges it
    output = run(commands[1], status=0 if labelled else 3)
    assert ("At most 1 point lost: yes" if labelled else "Not judged: ") in output
    assert Path("bridges/2-to-1").is_dir()


@pytest.mark.parametrize("labelled", [True, False])
def test_the_commands_for_an_index_and_a_new_model(labelled, files):
    files(labelled)
    block = README[README.index("holdfast gallery create shop --vectors") : README.index("holdfast serve shop")]
    for line in block.strip().splitlines():
        output = run(line)
    assert "rotation from 300 pairs" in output


def test_commands_name_real_verbs_and_recipes():
    from typer.main import get_command

    from holdfast.train.experiments.load import builtin_recipes

    verbs = get_command(app).commands  # type: ignore[attr-defined]
    recipes = dict(builtin_recipes())
    found = re.findall(r"^holdfast (\w+)(?: (\S+))?", README, re.MULTILINE)
    assert found
    for verb, argument in found:
        assert verb in verbs
        if verb == "run" and not argument.endswith(".toml"):
            assert argument in recipes


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.parametrize("page", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link
