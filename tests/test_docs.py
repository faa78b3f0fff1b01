"""A newcomer finds every page: links lead from the README to each, and none of them leads nowhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def links(page: Path) -> set[Path]:
    """What ``page`` links to in the repository; a folder stands for its pages."""
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
            waiting += page.glob("*.md")
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


def test_the_table_of_needed_queries_follows_its_formula():
    """(1.96 / (g + m))^2 (p - g^2) with m = 1 point, to two figures."""
    page = (ROOT / "docs/faq.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) % \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for changed, *cells in rows:
        for gain, cell in zip((-0.005, 0.0, 0.01), cells, strict=True):
            needed = (1.96 / (gain + 0.01)) ** 2 * (int(changed) / 100 - gain**2)
            assert int(cell.replace(",", "")) == pytest.approx(needed, rel=0.02)
