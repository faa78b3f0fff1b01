"""The page of file formats names every file of a version's folder."""

import re
from pathlib import Path

PAGE = (Path(__file__).parents[3] / "docs/reference/files.md").read_text(encoding="utf-8")


def test_every_file_of_a_version_is_on_the_page(second):
    section = PAGE[PAGE.index("## Model folder") : PAGE.index("## Run folder")]
    listed = set(re.findall(r"`([\w.]+/?)`", section))
    there = {file.name + ("/" if file.is_dir() else "") for file in second.iterdir()}
    assert there - listed == set()
    assert {"check.json", "held_out.json", "seal.json"} <= there
