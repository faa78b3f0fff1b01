"""Hooks of the documentation site (mkdocs.yml).

Pages link to files of the repository that are not part of the site, such as results and recipes. On the site such a
link becomes its text, because the files are not there. Some files of the repository's root, and the notebook with its
outputs, are pages of the site. Pages of results have wide tables: they use the width of the table of contents too, and
the numbers of one cell stay on one line.
"""

import json
import re
import runpy
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.resolve()
ROOT_PAGES = {"SECURITY.md": "security.md", "CHANGELOG.md": "changelog.md"}
"""File in the repository's root -> its page on the site."""
NOTEBOOK, NOTEBOOK_PAGE = DOCS / "holdfast-in-ten-minutes.ipynb", "notebook.md"
NUMBERS_CELL = re.compile(r"(<td[^>]*>)((?:[^<>&]|&[lg]t;)*\d(?:[^<>&]|&[lg]t;)*)(</td>)")
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?!https?://|#|mailto:)[^)\s#]+)(#[^)]*)?\)")


def on_files(files: Any, *, config: Any) -> Any:
    """Add the pages that are in the repository's root, the notebook, and the Python API by group."""
    from mkdocs.structure.files import File

    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=(DOCS.parent / name).read_text(encoding="utf-8")))
    files.append(File.generated(config, NOTEBOOK_PAGE, content=notebook_page(NOTEBOOK)))
    writer = runpy.run_path(str(DOCS / "reference/write_reference.py"))
    for name, text in writer["api_pages"]().items():
        files.append(File.generated(config, f"reference/api/{name}", content=text))
    return files


def notebook_page(notebook: Path) -> str:
    """A notebook as Markdown: its texts, its code, and what the code showed."""
    parts = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            parts.append(_shown(output.get("data") or {"text/plain": output["text"]}))
    return "\n\n".join(parts) + "\n"


def _shown(data: dict[str, Any]) -> str:
    """One output of a cell: as HTML if it has that, else as text."""
    forms = {kind: "".join(content) for kind, content in data.items()}
    if "text/html" in forms:
        return f'<div class="output">{forms["text/html"]}</div>'
    return f"```text\n{forms['text/plain'].rstrip()}\n```"


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links out of the site, and links to folders by links to their README if they have one.

    Pages of results lose their table of contents.
    """
    source = page.file.src_uri
    if source.startswith("results/"):
        page.meta["hide"] = ["toc"]
    here = DOCS.parent if source in ROOT_PAGES.values() else (DOCS / source).parent
    depth = "../" * source.count("/")

    def replaced(found: re.Match[str]) -> str:
        text, target, part = found.group(1), found.group(2), found.group(3) or ""
        path = (here / target).resolve()
        if path.parent == DOCS.parent and path.name in ROOT_PAGES:
            return f"[{text}]({depth}{ROOT_PAGES[path.name]}{part})"
        if path == NOTEBOOK:
            return f"[{text}]({depth}{NOTEBOOK_PAGE})"
        if not path.is_relative_to(DOCS):
            return text
        if here == DOCS.parent:
            target = path.relative_to(DOCS).as_posix()
        if path.is_dir():
            index = path / "README.md"
            return f"[{text}]({target.rstrip('/')}/README.md{part})" if index.exists() else text
        return f"[{text}]({target}{part})"

    return LINK.sub(replaced, markdown)


def on_page_content(html: str, *, page: Any, config: Any, files: Any) -> str:
    """Keep cells of numbers, such as ``0.95 48.40 46.20``, on one line in pages of results."""
    if not page.file.src_uri.startswith("results/"):
        return html

    def kept(found: re.Match[str]) -> str:
        start, cell, end = found.groups()
        words = re.search(r"[^\W\d_]{3,}", cell.replace("&lt;", "").replace("&gt;", ""))
        return found.group(0) if words else start + cell.replace(" ", "\N{NO-BREAK SPACE}") + end

    return NUMBERS_CELL.sub(kept, html)
