"""What docs/gallery.md, docs/operating.md and the pages on engines tell a reader to type works."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.main import get_command
from typer.testing import CliRunner

from holdfast.cli import app

pytest.importorskip("qdrant_edge")

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ["gallery.md", "operating.md", *(f"engines/{name}.md" for name in ("embedded", "postgresql", "qdrant"))]
FOREIGN = {"--name", "--shm-size", "--engine", "--alone", "--mixed"}
"""Options of docker, of bench/gallery.py, which has a test of its own, and of holdfast evaluate."""


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(page), re.MULTILINE | re.DOTALL)


def test_python(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (code,) = blocks("gallery.md", "python")
    exec(compile(code, "docs/gallery.md", "exec"), {})
    assert capsys.readouterr().out == "a 1.000 from version 1\n"


def test_postgresql(capsys, tmp_path, monkeypatch, postgres_server):
    """The administrator's statements, then the gallery's, on a real server."""
    import psycopg

    monkeypatch.chdir(tmp_path)
    statements, *_ = blocks("engines/postgresql.md", "sql")  # the runbook's have a test of their own
    before, after = statements.split("\\c galleries\n")
    # The page calls the role as the test server calls its administrator.
    url = postgres_server.url
    with psycopg.connect(url, autocommit=True) as administrator:
        for statement in before.replace("ROLE holdfast", "ROLE galleries").strip().splitlines():
            administrator.execute(statement)
    url = url.replace("/postgres?", "/galleries?")
    with psycopg.connect(url, autocommit=True) as administrator:
        administrator.execute(after)
    code, *_ = blocks("engines/postgresql.md", "python")
    assert "postgresql://holdfast@localhost/galleries" in code
    exec(compile(code.replace("postgresql://holdfast@localhost/galleries", url), "page", "exec"), {})
    assert capsys.readouterr().out == "a 1.000\n"


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_exist(page):
    everything = get_command(app).commands  # type: ignore[attr-defined]
    verbs = everything["gallery"].commands
    for verb, rest in re.findall(r"holdfast gallery (\w+)([^\n`]*)", text_of(page)):
        assert verb in verbs
        known = {name for option in verbs[verb].params for name in (*option.opts, *option.secondary_opts)}
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", rest)) <= known, rest
    others = [everything[name] for name in ("bridge", "check")]
    options = [option for verb in (*verbs.values(), *others) for option in verb.params]
    known = {name for option in options for name in (*option.opts, *option.secondary_opts)}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text_of(page))) <= known | FOREIGN


def without_digits(text):
    """The lines of a text without their numbers, because other models and machines give others."""
    return {" ".join(re.sub(r"[\d.]+", "", line).split()) for line in text.splitlines()}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!http)([^)#]+)", text_of(page)):
        assert ((DOCS / page).parent / target).exists(), target


@pytest.mark.parametrize("page", ["docs/gallery.md", "README.md"])
def test_what_old_items_lose_is_what_was_measured(page):
    """The caveat's shares are those of docs/results/mixed.md: older items, and their part of the first places."""
    text = " ".join((DOCS.parent / page).read_text(encoding="utf-8").split())
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text_of("results/mixed.md").splitlines()]
    hoc = {(row[0], row[1]): row for row in rows if len(row) > 2 and row[2] == "d-Simplex-HOC"}
    found, anew, items, first = hoc["7", "Two replacements"][3:7]
    assert f"{items} % of the gallery" in text
    assert f"took {first} % of the first places" in text
    if page == "docs/gallery.md":
        assert f"{hoc['31', 'No replacement'][5]} % took" in text
        assert f"{hoc['31', 'No replacement'][6]} %" in text
        assert f"({hoc['7', 'Two replacements'][0]} tasks: {found} %; {anew} % with everything re-embedded)" in text
        assert f"{hoc['31', 'Two replacements'][5]} % took {hoc['31', 'Two replacements'][6]} %" in text


def test_operating(model_folders, picture_files, pictures, capsys, tmp_path, monkeypatch):
    """Every command of the way through, in order, then the Python beside it."""
    monkeypatch.chdir(tmp_path)
    for number, folder in enumerate(model_folders, 1):
        shutil.copytree(folder, tmp_path / "models" / str(number))
    shutil.copytree(picture_files[0].parents[1], tmp_path / "pictures")
    Image.fromarray(pictures[100][..., 0]).save("query.png")
    way, *_, code = re.findall(r"^```\w*\n(.*?)^```", text_of("operating.md"), re.MULTILINE | re.DOTALL)
    commands = [line.split()[1:] for line in way.splitlines() if line]
    assert [words[1] for words in commands] == [
        "create", "add", "register", "versions", "search", "backfill", "backfill", "stats", "rollback",
    ]  # fmt: skip
    said = []
    for words in commands:
        words = [*words, "--force"] if words[1] == "register" else words  # these models are not trained
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output, result.exception)
        said.append(result.stdout)
    (shown,) = blocks("operating.md", "text")
    assert without_digits(shown) <= without_digits(said[5])
    assert "10 items moved to version 2" in said[5]
    assert "30 items moved to version 2" in said[6]
    assert "40 items embedded again, 0 dropped" in said[8]
    CliRunner().invoke(app, ["gallery", "register", "G", "models/3", "--force"])
    exec(compile(code, "docs/operating.md", "exec"), {})
    assert capsys.readouterr().out == "3 hits\n"
