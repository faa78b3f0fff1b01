"""The demo's last step: a gallery whose items were embedded by the demo's successive models."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from holdfast.checking.result import INCOMPATIBLE
from holdfast.cli.gallery_versions_text import verdicts
from holdfast.cli.show import say
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.data import ImageSet, OpenSet
    from holdfast.gallery import Version

_QUERIES_KEPT = 40


@dataclass(frozen=True)
class DemoGallery:
    """What came of it: the versions, or why there is no gallery."""

    folder: Path
    query: Path
    method: str
    versions: "list[Version]"
    missing: str = ""

    def tell(self) -> None:
        """Where the gallery is and what to do with it."""
        if self.missing:
            typer.echo(f"No gallery: {self.missing}")
            return
        typer.echo(f"Gallery: {self.folder.resolve()}")
        typer.echo(
            f"    images embedded in turn by {self.method}'s {len(self.versions)} models, searched by the newest:"
        )
        forced = [one for one in self.versions if any(check["verdict"] == INCOMPATIBLE for check in one.checks)]
        typer.echo(f"    {program()} serve {self.folder}")
        typer.echo(f"    {program()} gallery search {self.folder} {self.query}")
        if forced:
            known = "; ".join(f"version {one.number} ({verdicts(one)})" for one in forced)
            say(f"Forced: {known}. gallery register refuses that without --force; here all models are to be seen.")

    def serve(self) -> None:
        """What ``holdfast serve FOLDER`` does, with its own defaults."""
        from typer.main import get_command

        from holdfast.cli import app

        if self.missing:
            raise HoldfastError(f"nothing to serve: {self.missing}")
        verbs: Any = get_command(app)
        verbs.commands["serve"].main([str(self.folder)], standalone_mode=False)


def program() -> str:
    """What to type for holdfast: its name, or where it lies if the shell would not find it (``make demo``)."""
    called = Path(sys.argv[0])
    if shutil.which("holdfast") or called.name != "holdfast":
        return "holdfast"
    return os.path.relpath(called)


def finish_with_gallery(
    scores: dict[str, dict[str, Any]], data: Callable[[str], "OpenSet"], out: Path, *, again: bool
) -> DemoGallery:
    """The gallery in ``out``, made of the best run's models; without the gallery extra, the reason why there is none.

    scores: by method, whose run is ``out / method``. again: make it anew. One that is there stays as it is otherwise,
    backfilled or not, while it is of these models.
    """
    folder, queries = out / "gallery", out / "query-images"
    method = ""
    try:
        method = _best(scores, out)
        versions = [] if again else _kept(folder, out / method)
        if not versions:
            sets = data(method)
            _write_images(sets.query, queries, most=_QUERIES_KEPT)
            versions = _build(folder, _models(out / method), sets.gallery, out / "gallery-images")
    except HoldfastError as error:
        return DemoGallery(folder, queries, method, [], str(error))
    return DemoGallery(folder, min(queries.iterdir()), method, versions)


def _best(scores: dict[str, dict[str, Any]], out: Path) -> str:
    """The method with the highest AC, then AA, among those whose models share one space as they are."""
    from holdfast.run_folder import RunFolder

    def known(score: float | None) -> float:
        return -1.0 if score is None or score != score else score

    own = [name for name in scores if not RunFolder(out / name).space_map(len(_models(out / name))).exists()]
    if not own:
        raise HoldfastError("these methods lead old features through a map at every search, which a gallery does not")
    return max(own, key=lambda name: (known(scores[name]["AC"]), known(scores[name]["AA"])))


def _build(folder: Path, models: list[Path], shown: "ImageSet", images: Path) -> "list[Version]":
    """An equal share of the images by each model, in turn; images lie in files, so that they can be embedded again."""
    from holdfast.gallery import Gallery, Item
    from holdfast.storage import replacing_folder

    if folder.exists():
        Gallery.open(folder).close()  # refuses what is no gallery, and one that is open elsewhere
    files = _write_images(shown, images)
    labels = [shown.class_names[label] for label in shown.labels]
    with replacing_folder(folder) as temporary, contextlib.ExitStack() as closing:
        gallery: Gallery | None = None
        for turn, model in enumerate(models):
            if gallery is None:
                gallery = closing.enter_context(Gallery.create(temporary, model, device="cpu"))
            else:
                gallery.register(model, force=True)  # the verdict stays with the version; ``tell`` names such versions
            mine = range(turn, len(files), len(models))
            gallery.add(Item(files[n].name, path=files[n], label=labels[n]) for n in mine)
        assert gallery is not None
        return gallery.versions()


def _kept(folder: Path, run: Path) -> "list[Version]":
    """The versions of a gallery that an earlier demo made of these models; none where it has to be made."""
    from holdfast.gallery import Gallery
    from holdfast.storage import read_json

    if not folder.exists():
        return []
    with Gallery.open(folder) as there:
        versions = there.versions()
    hashes = {read_json(model / "config.json")["weights_sha256"] for model in _models(run)}
    return versions if {one.weights_sha256 for one in versions} <= hashes else []


def _models(run: Path) -> list[Path]:
    return sorted(path for path in (run / "models").iterdir() if path.is_dir())


def _write_images(images: "ImageSet", folder: Path, most: int | None = None) -> list[Path]:
    """Some or all images, evenly over the set, as PNG files."""
    from PIL import Image

    if images.holds_vectors:
        raise HoldfastError("the data are vectors, not images")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for n in np.linspace(0, len(images) - 1, num=min(len(images), most or len(images)), dtype=int):
        pixels = images.images[n]
        files.append((folder / f"{n:05d}.png").absolute())
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(files[-1])
    return files
