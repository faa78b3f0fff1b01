"""``holdfast demo --train``: an index, a new version of its model, and what each way to search it with that finds."""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.demo_story import (
    BRIDGED,
    PLAIN,
    TRAINED,
    TRAINED_BRIDGED,
    DemoSettings,
    run_demo,
)
from holdfast.cli.show import print_json, print_table, program, say
from holdfast.cli.version_text import print_bridges
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import per_cent

if TYPE_CHECKING:
    from holdfast.gallery import Item, Version

SETTINGS = DemoSettings()
_ROWS = (
    ("version 1", "version_1"),
    ("version 2, plain fine-tuning", PLAIN),
    ("  through a bridge", BRIDGED),
    ("version 2, trained by Holdfast", TRAINED),
    ("  through a bridge", TRAINED_BRIDGED),
    ("re-embedded by version 2, plain", "reembedded"),
)
"""Rows of the table, and their names in the record."""


def training_demo(out: Path, *, json: bool) -> None:
    """Update a model on drawn characters, search its old index in every way, and build a gallery with both versions.

    What is finished in the folder is used again; an interrupted demo is resumed.
    """
    record = _run(out, quiet=json)
    gallery = build_gallery(out)
    if json:
        print_json({**record, "gallery": gallery.as_json()})
    else:
        _print_story(record, out)
        gallery.print()


def _run(out: Path, *, quiet: bool) -> dict[str, Any]:
    from holdfast.cli.progress import ProgressDisplay, cancel_on_interrupt, exit_on_interrupt

    with exit_on_interrupt(), cancel_on_interrupt() as cancel, ProgressDisplay(quiet=quiet) as display:
        return run_demo(out, SETTINGS, display.watch, cancel)


def _print_story(record: dict[str, Any], out: Path) -> None:
    settings, scores, checks = record["settings"], record["scores"], record["checks"]
    half = settings["train_classes"] // 2
    say(
        f"Version 1 was trained on {half} drawn characters and embedded an index: {record['items']:,} images of "
        f"{settings['test_classes']} other characters. Version 2 learns {half} more characters. "
        f"{record['queries']:,} new images are searched for; a hit is right if it shows the same character."
    )
    shown = {key: per_cent(found["value"], 1) for key, found in scores.items()}
    print_table(
        ["the index of version 1, searched by", "right, %", "at most 1 point lost"],
        [[name, shown[key], checks.get(key, {}).get("at_most_1_point_lost", "–")] for name, key in _ROWS],
        right=(1,),
    )
    for sentence in story_sentences(record):
        say(sentence)
    typer.echo(f"Check reports: {out / 'checks'}{os.sep}*.html")


def story_sentences(record: dict[str, Any]) -> list[str]:
    """One sentence for each number of the table."""
    shown = {key: f"{per_cent(found['value'], 1)} %" for key, found in record["scores"].items()}
    return [
        f"Version 1 searches its own index: {shown['version_1']} of the first hits are right.",
        f"Version 2 after plain fine-tuning, on the same index: {shown[PLAIN]}.",
        f"The same through a bridge, fitted on {record['pairs']} images of the index that both versions embedded: "
        f"{shown[BRIDGED]}. No stored vector changes.",
        f"`holdfast update` trains version 2 to stay close to version 1: {shown[TRAINED]} on the unchanged index, "
        f"{shown[TRAINED_BRIDGED]} through a bridge.",
        f"Embedding all {record['items']:,} images again: {shown['reembedded']} with plain fine-tuning, "
        f"{shown['holdfast_reembedded']} with `holdfast update`.",
        "Numbers differ a little between machines. docs/demo.md says how the setting was fixed.",
    ]


@dataclass(frozen=True)
class DemoGallery:
    """The gallery of the demo: its versions, or in ``missing`` why there is none.

    refused: why version 2 is not in the gallery; empty if it is.
    """

    folder: Path
    query: Path
    versions: "list[Version]"
    missing: str = ""
    refused: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "versions": [{"number": one.number, "bridges": one.bridges} for one in self.versions],
            "missing": self.missing or None,
            "refused": self.refused or None,
        }

    def print(self) -> None:
        """Print where the gallery is and which commands use it."""
        if self.missing:
            say(f"No gallery: {self.missing}")
            return
        typer.echo(f"Gallery, to look at: {program()} serve {self.folder}")
        typer.echo(f"    or: {program()} gallery search {self.folder} {self.query}")
        if self.refused:
            say(f"It holds version 1 only. Refused: {self.refused}")
            return
        say("It holds the index of version 1 and as many new images, embedded by version 2 (Holdfast).")
        print_bridges(self.versions[-1], [one.number for one in self.versions[:-1]])


def build_gallery(out: Path) -> DemoGallery:
    """Build the gallery of a finished demo in ``out``; one that is there is kept unchanged.

    Version 1 embeds the index. Version 2 is registered and embeds half of the queries as new items; the others are left
    to search with. Without the gallery extra the result says why there is no gallery.
    """
    from holdfast.core.storage import replacing_folder
    from holdfast.gallery import Gallery

    folder = out / "gallery"
    new, left = _images(out / "images" / "queries", every=2), _images(out / "images" / "queries", every=2, first=1)
    query = left[0]
    refused = ""
    try:
        if folder.exists():
            with Gallery.open(folder) as there:
                versions = there.versions()
            if len(versions) < 2:
                refused = "the check of an earlier demo found that it finds less"
            return DemoGallery(folder, query, versions, refused=refused)
        with replacing_folder(folder) as temporary, contextlib.ExitStack() as closing:
            gallery = closing.enter_context(Gallery.create(temporary, out / "models" / "1", device="cpu"))
            gallery.add(_item(file) for file in _images(out / "images" / "index"))
            try:
                gallery.register(out / "models" / "2")
                gallery.add(_item(file) for file in new)
            except HoldfastError as error:
                refused = str(error)
            versions = gallery.versions()
    except HoldfastError as error:
        return DemoGallery(folder, query, [], missing=str(error))
    return DemoGallery(folder, query, versions, refused=refused)


def _images(folder: Path, *, every: int = 1, first: int = 0) -> list[Path]:
    return sorted(folder.glob("*/*.png"))[first::every]


def _item(file: Path) -> "Item":
    from holdfast.gallery import Item

    code, part = file.parent.name, file.parent.parent.name
    character = chr(int(code.removeprefix("U+"), 16))
    return Item(f"{part}/{code}/{file.stem}", path=file.absolute(), label=f"{code} {character}")
