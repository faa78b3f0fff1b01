"""A newcomer finds every page: links lead from the README to each, and none of them leads nowhere."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from holdfast.metrics.intervals import gain_interval, units_needed
from holdfast.reports.check_report import rounded_up

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def links(page: Path) -> set[Path]:
    """What ``page`` links to in the repository; a folder stands for its README, as on the site."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    return {(page.parent / link).resolve() for link in found if "://" not in link and not link.startswith("mailto:")}


def reachable(start: Path) -> set[Path]:
    seen, waiting = set(), [start]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        if page.is_dir():
            waiting += page.glob("README.md")
        elif page.suffix == ".md":
            waiting += links(page)
    return seen


def test_every_page_is_reached_from_the_readme():
    assert PAGES
    assert set(PAGES) <= reachable(ROOT / "README.md")


def test_the_index_names_every_page_beside_it():
    beside = {page for page in (ROOT / "docs").glob("*.md") if page.name != "README.md"}
    assert beside <= links(ROOT / "docs" / "README.md")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page):
    assert not [link for link in links(page) if not link.exists()]


def test_nothing_is_installed_from_an_index_that_does_not_have_it():
    """Holdfast is installed from its clone (``pip install '.[serve]'``), on every page and in every message."""
    told = [*PAGES, *(ROOT / "docs").glob("*.ipynb"), *(ROOT / "src").rglob("*.py"), ROOT / "README.md"]
    from_index = re.compile(r"pip install '?holdfast|`holdfast\[\w")
    assert not [file for file in told if from_index.search(file.read_text(encoding="utf-8"))]


def test_one_version_everywhere():
    """The package, the citation and the newest section of the changelog."""
    package = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    cited = re.search(r"^version: (\S+)$", citation, re.MULTILINE)
    released = re.search(r"^date-released: (\S+)$", citation, re.MULTILINE)
    section = re.search(r"^## \[([\d.]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert cited is not None
    assert released is not None
    assert section is not None
    assert section.groups() == (package, released.group(1))
    assert cited.group(1) == package


def needed_queries(changed: float, gain: float, accepted: float) -> str:
    """What the check prints for 400 queries of which so many change between right and wrong."""
    count = 400
    up, down = (round(count * (changed + sign * gain) / 2) for sign in (1, -1))
    before = [0.0] * up + [1.0] * (count - up)
    after = [1.0] * up + [0.0] * down + [1.0] * (count - up - down)
    found = gain_interval(before, after)
    if not found.low <= -accepted <= found.high:
        return f"under {count}"
    needed = units_needed(before, after, -accepted)
    assert needed is not None
    return f"{rounded_up(needed):,}"


def test_the_table_of_needed_queries_is_what_the_check_prints():
    page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) % \| (\d) points? \| (.*) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 6
    for changed, accepted, *cells in rows:
        found = [needed_queries(int(changed) / 100, gain, int(accepted) / 100) for gain in (-0.005, 0.0, 0.01)]
        assert cells == found, (changed, accepted)


def test_the_page_of_benchmarks_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from benchmarks_page import PAGE, render

    assert PAGE.read_text(encoding="utf-8") == render(), "run: python bench/benchmarks_page.py"


def test_the_page_of_training_speed_is_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    from training_page import PAGE, render

    assert PAGE.read_text(encoding="utf-8") == render(), "run: python bench/training_page.py"


def test_every_bench_is_listed():
    readme = (ROOT / "bench/README.md").read_text(encoding="utf-8")
    assert [script.name for script in (ROOT / "bench").glob("*.py") if f"`{script.name}`" not in readme] == []


def test_the_cost_page_prints_what_it_shows(capsys):
    page = (ROOT / "docs/cost.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (shown,) = re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    exec(compile(code, "docs/cost.md", "exec"), {})
    assert capsys.readouterr().out == shown
    benchmarks = (ROOT / "docs/benchmarks.md").read_text(encoding="utf-8")
    for time in re.findall(r"[\d.]+ ms", page):
        assert time in benchmarks
    seconds, rate = re.search(r"needs ([\d,]+) s for a million.*?about (\d+) a second", page, re.DOTALL).groups()
    assert f"a million photographs takes {seconds} s" in (ROOT / "docs/results/quarters.md").read_text(encoding="utf-8")
    assert int(rate) == round(1e6 / int(seconds.replace(",", "")))


def test_the_accuracies_of_choosing_a_method_are_those_of_table_2():
    page = " ".join((ROOT / "docs/choosing-a-method.md").read_text(encoding="utf-8").split())
    table = (ROOT / "docs/results/table2.md").read_text(encoding="utf-8")
    table = table.partition("## Chosen settings with rotated queries")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| 16 ")]
    accuracy = {row[1]: float(row[4].split()[1]) for row in rows}  # by instance: AC-R, AA, ACA
    own, simplex = accuracy["d-Simplex-HOC-Views (ours)"], accuracy["d-Simplex-HOC"]
    said = f"distillation has {accuracy['Distillation']:.1f} %, `simplex_hoc_views` {own:.1f} % and d-Simplex-HOC"
    assert f"{said} {simplex:.1f} %" in page


def test_the_numbers_of_choosing_a_method_are_those_of_the_studies():
    page, study, bridges = (
        (ROOT / "docs" / name).read_text(encoding="utf-8")
        for name in ("choosing-a-method.md", "results/quarters.md", "results/bridges.md")
    )
    for start, title in (
        ("| whole network, kept, %", "Whole network"),
        ("| kept, % | 1 update", "Head on a frozen network"),
    ):
        unseen, known, rest = (
            study[study.index(part) :]
            for part in (f"## {title}: unseen", f"## {title}: known", f"## The network is replaced: {title.lower()}")
        )
        for shown, cells in table_after(page, start).items():
            own, trained = (table_after(part, "| kept, %")[shown] for part in (unseen, known))
            assert cells == [own[0], own[3], trained[3], table_after(rest, "|  | own recall@1")[shown][2]], shown
    measured = table_after(bridges[bridges.index("lite0 to lite2") :], "| kept, %")["auto"]
    assert table_after(page, "| pairs | 50")["kept, %"] == measured
    last = table_after(known, "| last version")
    assert (
        f"{float(last['plain'][1]) - float(last['Cosine-HOC'][1]):.1f} points of mAP lower on trained classes" in page
    )
    gain = table_after(unseen, "| last version")["Cosine-HOC"][3]
    assert f"{float(gain):.1f} points of recall@1 higher on unseen ones" in page
    newest = table_after(study, "| difference in points")[
        "newest model of Cosine-HOC less that of plain: mAP on its own index"
    ]
    new, trained = (f"{-float(newest[column]):.1f}" for column in (0, 2))
    assert f"{trained} points of mAP lower on trained classes and {new} on unseen ones" in page
    better, worse = (
        float(table_after(study[study.index(f"## Whole network: {part}") :], "| last version")["distillation"][3])
        for part in ("unseen", "known")
    )
    assert f"{better:.1f} points of recall@1 better on unseen classes and {-worse:.1f} worse on trained ones" in page


def test_the_numbers_of_the_comparison_with_other_ways_are_those_of_the_results():
    page, results = ((ROOT / "docs" / name).read_text("utf-8") for name in ("comparison.md", "results/serving-both.md"))
    rows = {line.split(" | ")[0].strip("| "): line for line in page.splitlines() if line.startswith("| ")}
    for way, starts, phrase in (
        ("two-stage search", "- Two-stage@50 with both scores", "above it in {} of 15 replacements of text"),
        ("re-embedding", "- Re-embedding everything", "above it in {} of 15"),
        ("query adapter (bridge)", "- A bridge alone", "below it in {} of 15"),
    ):  # fmt: skip
        line = results[results.index(starts) :].split("\n")[0]
        assert phrase.format(re.search(r"(?:above 0 in|keeping in) (\d+)", line)[1]) in rows[way], way
    _, bridge, re_embedded = table_after(results, "| replacement | keep")["**mean**"][:3]
    assert f"a bridge alone kept {100 * float(bridge) / float(re_embedded):.0f} % of re-embedding's" in page


def test_the_numbers_of_pretrained_networks_are_those_of_the_study():
    pretrained, study = ((ROOT / "docs" / name).read_text("utf-8") for name in ("pretrained.md", "results/quarters.md"))
    last = table_after(study[study.index("## Whole network: unseen") :], "| last version")
    before, after = last["no training: the network's own vectors"][0], last["distillation"][0]
    assert f"{before} % before training and {after} % after four updates" in " ".join(pretrained.split())


def test_the_default_method_of_pretrained_networks_is_chosen_by_the_record():
    record = json.loads((ROOT / "results/bench/pretrained_method-2cores.json").read_text(encoding="utf-8"))
    page = (ROOT / "docs/methods/distillation.md").read_text(encoding="utf-8")
    said = table_after(page, "| trained by | mAP on its own gallery")
    for row in record["rows"]:
        name = "the network without training" if row["training"] == "none" else row["training"]
        across = f"{100 * row['new_on_old']['mAP']:.1f}" if "new_on_old" in row else "–"
        assert said.pop(name) == [f"{100 * row['own'][-1]['mAP']:.1f}", across]
    assert not said


def test_the_methods_for_networks_without_trained_weights_are_compared_by_the_record():
    rows = json.loads((ROOT / "results/bench/scratch_method-2cores.json").read_text(encoding="utf-8"))["rows"]
    page = (ROOT / "docs/choosing-a-method.md").read_text(encoding="utf-8")
    said = table_after(page, "| from scratch, one update")
    columns = (
        "known: version 1",
        "known: version 2, old index",
        "known: re-embedded by version 2",
        "new: all embedded by version 2",
        "others: version 1",
        "others: version 2, old index",
        "others: re-embedded by version 2",
    )
    for name in {row["training"] for row in rows}:
        seeds = [row for row in rows if row["training"] == name]
        means = [sum(row[column] for row in seeds) / len(seeds) for column in columns]
        assert said.pop(name) == [f"{100 * mean:.1f}" for mean in means]
        assert all(row["bridge"] == "none" for row in seeds)
    assert not said


def table_after(text: str, start: str) -> dict[str, list[str]]:
    """The table whose header begins with ``start``: first cell -> the other cells, without deviations and seeds."""
    lines = text[text.index(start) :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip().split("±")[0] for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].split(" (n = ")[0]: row[1:] for row in rows}
