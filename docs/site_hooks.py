"""Hooks of the documentation site (mkdocs.yml).

Pages link to files of the repository that are not part of the site, such as results and recipes. On the site such a
link becomes its text, because the files are not there.
"""

import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.resolve()
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(((?!https?://|#|mailto:)[^)\s#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Replace links out of the site, and links to folders by links to their README if they have one."""
    here = (DOCS / page.file.src_uri).parent

    def replaced(found: re.Match[str]) -> str:
        text, target, part = found.group(1), found.group(2), found.group(3) or ""
        path = (here / target).resolve()
        if not path.is_relative_to(DOCS):
            return text
        if path.is_dir():
            index = path / "README.md"
            return f"[{text}]({target.rstrip('/')}/README.md{part})" if index.exists() else text
        return found.group(0)

    return LINK.sub(replaced, markdown)
