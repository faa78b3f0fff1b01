"""``holdfast demo``: compare methods on drawn characters, offline, and build a gallery with the best method."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.gallery import EXPOSURE_TEXT, describe_exposures
from holdfast.cli.options import JSON_OPTION, QUIET_OPTION, SET_OPTION, method_list
from holdfast.cli.show import fraction, print_json, print_table, say, scores_row
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    import numpy as np

    from holdfast.data import ImageSet, OpenSet
    from holdfast.experiments.assemble import SharedData
    from holdfast.experiments.schema import Recipe
    from holdfast.gallery import Version


DEFAULT_METHODS = "er,simplex_fd,simplex_hoc"


def demo(
    methods: str = typer.Option(DEFAULT_METHODS, "--methods", help="Names separated by commas, or all."),
    out: Path = typer.Option(Path("runs/demo"), "--out", "-o", help="Where the runs and the report go."),
    set_: list[str] = SET_OPTION,
    serve: bool = typer.Option(False, "--serve", help="Then serve the gallery it builds."),
    again: bool = typer.Option(False, "--again", help="Train again even if runs exist."),
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Compare methods on drawn characters, and build a gallery.

    Each method updates a model task after task, and old galleries are never re-indexed. The methods train on the CPU,
    one per core, and are tested on characters that they were not trained on. Writes one report and builds a gallery
    with the models of the best method. Finished runs in the folder are kept; an interrupted run is resumed.

    Example: holdfast demo --methods er,simplex_hoc --out demo
    """
    from holdfast.experiments.assemble import SharedData
    from holdfast.experiments.load import read_recipe
    from holdfast.experiments.schema import check_recipe
    from holdfast.reports import write_report

    names = method_list(methods)
    # Every recipe is checked before the first one runs.
    recipes = {name: check_recipe(read_recipe("demo", [f"method.name={name}", *set_])) for name in names}
    if again:
        for name in names:
            _remove(out / name)
    shared = SharedData()
    found = _run_all_methods(recipes, out, shared, quiet or json)
    results = {name: metrics["protocols"]["template"] for name, metrics in found.items()}
    by_instance = {name: metrics["protocols"].get("instance") for name, metrics in found.items()}
    page = out / "report.html"
    write_report([out / name for name in names], page)
    gallery = finish_with_gallery(results, lambda name: shared.open_set(recipes[name]), out, again=again)
    if json:
        print_json(
            [
                {**_row(name, scores), "instance": _scores(by_instance[name]), "run": str(out / name)}
                for name, scores in results.items()
            ]
        )
    else:
        _show(results, by_instance, page)
        gallery.print()
    if serve:
        gallery.serve()


def _row(name: str, scores: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "protocol": "template", **_scores(scores), "matrix": scores["matrix"]}


def _scores(protocol: dict[str, Any] | None) -> dict[str, Any]:
    return {key: None if protocol is None else protocol[key] for key in ("AC", "AA", "ACA")}


def _show(results: dict[str, dict[str, Any]], by_instance: dict[str, dict[str, Any] | None], page: Path) -> None:
    from holdfast.methods import method_class

    rows = []
    for name, scores in results.items():
        shown = f"{name} (ours)" if method_class(name).ours else name
        rows.append([*scores_row(shown, scores), fraction(_scores(by_instance[name])["AC"])])
    print_table(["by template", "AC", "AA %", "ACA %", "AC by instance"], rows, right=(1, 2, 3, 4))
    typer.echo("By template, as in the paper: a query looks for the nearest class mean.")
    typer.echo("By instance, as a search works: it looks for the nearest single image.")
    typer.echo("They differ: a class mean hides how its single images have moved.")
    typer.echo("AC: share of (new model, old gallery) pairs where the new model's queries")
    typer.echo("    beat the old model's own.   AA: mean of all self- and cross-tests.")
    typer.echo("ACA: mean of the cross-tests (new model, old gallery) alone, with 0 for a pair")
    typer.echo("    that is not compatible; so it can be above AA.")
    typer.echo(f"Report: {page.resolve()}")


def _run_all_methods(
    recipes: "dict[str, Recipe]", out: Path, shared: "SharedData", quiet: bool
) -> dict[str, dict[str, Any]]:
    """Run every recipe with one thread each; small networks gain little from a second thread.

    With one thread the numbers do not depend on the number of cores.
    """
    import torch

    from holdfast.cli.progress import exit_on_interrupt
    from holdfast.cli.sweep_progress import sweep_display
    from holdfast.errors import HoldfastError
    from holdfast.experiments.plan import PlannedRun
    from holdfast.experiments.sweep import SweepOptions, run_all

    runs = [PlannedRun(name, recipe, f"holdfast demo --methods {name}") for name, recipe in recipes.items()]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    options = SweepOptions(torch.device("cpu"), parallel=min(len(runs), os.cpu_count() or 1))
    try:
        with exit_on_interrupt(), sweep_display(list(recipes), quiet=quiet) as watch:
            found = run_all(runs, out, options, shared=shared, watch=watch)
    finally:
        torch.set_num_threads(threads)
    metrics = {}
    for name, result in found.items():
        if isinstance(result, HoldfastError):
            raise HoldfastError(f"{name}: {result}")
        metrics[name] = result
    return metrics


def _remove(folder: Path) -> None:
    """Delete an earlier run. A folder that is not a run is refused."""
    import shutil

    from holdfast.errors import HoldfastError
    from holdfast.run_folder import RunFolder

    if folder.exists():
        if not RunFolder(folder).recipe.exists():
            raise HoldfastError(f"{folder}: not a run folder, so it is not deleted; choose another --out")
        shutil.rmtree(folder)


_QUERIES_KEPT = 40


@dataclass(frozen=True)
class DemoGallery:
    """The gallery of the demo: its versions, or in ``missing`` why there is none.

    refused: one sentence for each model that is not in the gallery.
    """

    folder: Path
    query: Path
    method: str
    versions: "list[Version]"
    missing: str = ""
    refused: tuple[str, ...] = ()

    def print(self) -> None:
        """Print where the gallery is and which commands use it."""
        if self.missing:
            typer.echo(f"No gallery: {self.missing}")
            return
        typer.echo(f"Gallery: {self.folder.resolve()}")
        typer.echo(
            f"    images embedded in turn by {self.method}'s {len(self.versions)} models, searched by the newest:"
        )
        typer.echo(f"    {program()} serve {self.folder}")
        typer.echo(f"    {program()} gallery search {self.folder} {self.query}")
        newest = self.versions[-1]
        if newest.bridges:
            typer.echo(f"Bridges of version {newest.number}, fitted by gallery register:")
            for record in newest.bridges:
                typer.echo(_bridge_line(record))
            typer.echo(EXPOSURE_TEXT)
        for sentence in self.refused:
            say(sentence)

    def serve(self) -> None:
        """Serve the gallery as ``holdfast serve FOLDER`` does."""
        from holdfast.cli.serve import serve

        if self.missing:
            raise HoldfastError(f"nothing to serve: {self.missing}")
        command = typer.Typer()
        command.command()(serve)
        command([str(self.folder)], standalone_mode=False)


def _bridge_line(record: dict[str, Any]) -> str:
    """The bridge to an older version, and the expected exposure of its items with and without the bridge."""
    bridged = record["kind"] != "none"
    scaled = record["exposure_without"] not in (None, record["exposure"])
    what = record["kind"] if bridged else "only scaled" if scaled else "no map"
    line = f"    version {record['version']}: {what}; "
    if not record["exposure"]:
        return f"{line}too few images to measure exposure"
    line += f"exposure {describe_exposures(record['exposure'])}"
    if (bridged or scaled) and record["exposure_without"]:
        plain = ("unknown" if ratio is None else f"{ratio:.2f}" for ratio in record["exposure_without"].values())
        line += f" ({', '.join(plain)} without)"
    return line


def program() -> str:
    """The name of this program, or its path if the shell would not find it (``make demo``)."""
    called = Path(sys.argv[0])
    if shutil.which("holdfast") or called.name != "holdfast":
        return "holdfast"
    return os.path.relpath(called)


def finish_with_gallery(
    scores: dict[str, dict[str, Any]], data: Callable[[str], "OpenSet"], out: Path, *, again: bool
) -> DemoGallery:
    """Build the gallery in ``out`` with the models of the best run.

    scores: template scores by method; the run of a method is in ``out / method``.
    data: gives the data of a method's run.
    again: build a new gallery. Otherwise a gallery of the same models is kept unchanged.

    Without the gallery extra the result says why there is no gallery.
    """
    import numpy as np

    folder, queries = out / "gallery", out / "query-images"
    method = ""
    try:
        method = _best(scores, out)
        versions, refused = ([], ()) if again else _kept(folder, out / method)
        if not versions:
            sets = data(method)
            kept = np.linspace(0, len(sets.query) - 1, num=min(len(sets.query), _QUERIES_KEPT), dtype=int)
            _write_images(sets.query, kept, queries)
            versions, refused = _build(folder, _models(out / method), _shown(sets, kept), out / "gallery-images")
    except HoldfastError as error:
        return DemoGallery(folder, queries, method, [], str(error))
    return DemoGallery(folder, min(queries.iterdir()), method, versions, refused=refused)


def _best(scores: dict[str, dict[str, Any]], out: Path) -> str:
    """The method with the highest AC, then AA, among those that learn no map between models."""
    from holdfast.run_folder import RunFolder

    def known(score: float | None) -> float:
        return -1.0 if score is None or score != score else score

    own = [name for name in scores if not RunFolder(out / name).space_map(len(_models(out / name))).exists()]
    if not own:
        raise HoldfastError("these methods map old features at every search, which a gallery does not do")
    return max(own, key=lambda name: (known(scores[name]["AC"]), known(scores[name]["AA"])))


def _shown(sets: "OpenSet", kept: "np.ndarray") -> "ImageSet":
    """The images of the gallery: the run's gallery, and its queries but those that are kept to search with.

    The run's gallery alone is too small to measure exposure: half of a version's items are needed for the check.
    """
    import numpy as np

    from holdfast.data import ImageSet

    gallery, query = sets.gallery, sets.query
    rest = np.setdiff1d(np.arange(len(query)), kept)
    number = {name: label for label, name in enumerate(dict.fromkeys((*gallery.class_names, *query.class_names)))}
    names = [gallery.class_names[label] for label in gallery.labels]
    names += [query.class_names[label] for label in query.labels[rest]]
    labels = np.array([number[name] for name in names], dtype=np.int64)
    return ImageSet(np.concatenate([gallery.images, query.images[rest]]), labels, tuple(number), "")


def _build(
    folder: Path, models: list[Path], shown: "ImageSet", images: Path
) -> "tuple[list[Version], tuple[str, ...]]":
    """Each model embeds an equal share of the images. They are written as files, so that they can be embedded again.

    Also returns one sentence for each model that was refused; the model before it embeds its share.
    """
    from holdfast.gallery import Gallery, Item
    from holdfast.storage import replacing_folder

    if folder.exists():
        Gallery.open(folder).close()  # refuses a folder that is not a gallery, and an open gallery
    files = _write_images(shown, range(len(shown)), images)
    labels = [shown.class_names[label] for label in shown.labels]
    with replacing_folder(folder) as temporary, contextlib.ExitStack() as closing:
        gallery: Gallery | None = None
        refused = []
        for i, model in enumerate(models):
            if gallery is None:
                gallery = closing.enter_context(Gallery.create(temporary, model, device="cpu"))
            else:
                try:
                    gallery.register(model)
                except HoldfastError as error:
                    refused.append(f"Refused: {error}")
            mine = range(i, len(files), len(models))
            gallery.add(Item(files[n].name, path=files[n], label=labels[n]) for n in mine)
        assert gallery is not None
        return gallery.versions(), tuple(refused)


def _kept(folder: Path, run: Path) -> "tuple[list[Version], tuple[str, ...]]":
    """The versions of the gallery that an earlier demo built with these models, and a sentence for each other model.

    Both are empty if there is no such gallery.
    """
    from holdfast.gallery import Gallery
    from holdfast.storage import read_json

    if not folder.exists():
        return [], ()
    with Gallery.open(folder) as there:
        versions = there.versions()
    models = {read_json(model / "config.json")["weights_sha256"]: model for model in _models(run)}
    used = {one.weights_sha256 for one in versions}
    if not used <= models.keys():
        return [], ()
    missing = (model for weights, model in models.items() if weights not in used)
    return versions, tuple(f"Not in the gallery: {model}" for model in missing)


def _models(run: Path) -> list[Path]:
    return sorted(path for path in (run / "models").iterdir() if path.is_dir())


def _write_images(images: "ImageSet", rows: "Iterable[int]", folder: Path) -> list[Path]:
    """Write images as PNG files, called by their row."""
    from PIL import Image

    if images.holds_vectors:
        raise HoldfastError("the data are vectors, not images")
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for n in rows:
        pixels = images.images[n]
        files.append((folder / f"{n:05d}.png").absolute())
        Image.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels).save(files[-1])
    return files
