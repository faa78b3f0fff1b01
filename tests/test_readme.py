"""What the README tells a reader to type works."""

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from holdfast.cli import app
from papers.upgrades.front_table import front_table

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_it_is_short():
    assert len(README.splitlines()) <= 120
    assert len(README.encode()) <= 9000


def test_the_first_table_is_that_of_the_results():
    assert f"\n\n{front_table(ROOT / 'results/upgrades')}\n\n" in README


def test_what_it_says_of_the_table_is_on_the_page_of_results():
    """Another test compares that page with the results."""
    page = (ROOT / "docs/results/serving-both.md").read_text(encoding="utf-8")
    assert "Two-stage@50 with both scores" in page
    line = page[page.index("- Two-stage@50 with both scores") :].split("\n")[0]
    assert re.search(
        r"of 15 replacements; the whole interval of the gain over keeping above 0 in 12, below 0 in 0", line
    )
    comparison = json.loads((ROOT / "results/upgrades/compare-cub-lite0-lite2.json").read_text(encoding="utf-8"))
    assert f"gains over {comparison['judged']:,} queries" in README


def test_the_limits_of_a_replaced_network_are_those_of_the_study():
    page = (ROOT / "docs/results/quarters.md").read_text(encoding="utf-8")
    networks = table_after(page[page.index("## The network is replaced: whole") :], "|  | own recall@1")
    shares = [[round(float(networks[name][at])) for at in (2, 3)] for name in ("plain + bridge", "keep lite0")]
    assert shares == [[92, 86], [91, 93]]


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


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The reader's files: the old model sees four of eight numbers of a text, and the new one all of them."""
    rng = np.random.default_rng(0)
    texts = rng.standard_normal((400, 8))
    asked = texts[:200] + 0.3 * rng.standard_normal((200, 8))
    names = {"ids": np.arange(400).astype(str), "query_ids": np.arange(200).astype(str)}
    monkeypatch.chdir(tmp_path)
    old = np.linalg.qr(rng.standard_normal((8, 8)))[0][:4].T
    for name, model in (("old", old), ("new", np.eye(8))):
        np.savez(f"{name}.npz", features=texts @ model, queries=asked @ model, **names)
    judgements = "".join(f"{number}\t{number}\t1\n" for number in range(200))
    Path("qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}")
    np.savez("index.npz", features=texts @ old, ids=names["ids"])
    np.savez("sample.npz", features=texts[:300] @ np.eye(8), ids=names["ids"][:300])
    return texts, old


def test_python(files, capsys):
    texts, old = files

    def search(vector, count):
        stored = texts @ old
        scores = stored @ vector / np.linalg.norm(stored, axis=1) / np.linalg.norm(vector)
        return [(int(row), float(scores[row]), texts[row]) for row in np.argsort(-scores)[:count]]

    def old_model(contents):
        return np.array([texts[3] if isinstance(content, str) else content for content in contents]) @ old

    def new_model(contents):
        return np.array([texts[3] if isinstance(content, str) else content for content in contents])

    (code,) = PYTHON
    exec(compile(code, "README.md", "exec"), {"search": search, "old_model": old_model, "new_model": new_model})
    printed = capsys.readouterr().out
    assert printed.startswith("recommended: two-stage@50")
    assert "id=3" in printed.split("\n")[1][:30]


def run(line, status=0):
    found = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
    assert found.exit_code == status, (line, found.output)
    return found.output


def test_the_first_commands_on_two_files(files):
    compare, bridge = re.findall(r"^holdfast (?:compare|bridge) .*", README, re.MULTILINE)
    assert "Recommended: two-stage@50" in run(compare)
    run(bridge, status=3)  # nothing was given that judges it
    assert Path("bridges/2-to-1").is_dir()


def test_the_commands_for_a_gallery(files):
    block = README[README.index("holdfast gallery create shop --vectors") : README.index("holdfast serve shop")]
    for line in block.strip().splitlines():
        output = run(line)
    assert "from 300 pairs" in output


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
