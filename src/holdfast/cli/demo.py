"""``holdfast demo``: the whole idea on drawn characters, offline, in minutes."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.run import QUIET_OPTION, SET_OPTION
from holdfast.cli.show import JSON_OPTION, fraction, print_json, print_table, scores_row

if TYPE_CHECKING:
    from holdfast.recipes.assemble import SharedData
    from holdfast.recipes.schema import Recipe

DEFAULT_METHODS = "er,simplex_fd,simplex_hoc"


def demo(
    methods: str = typer.Option(DEFAULT_METHODS, "--methods", help="Names separated by commas, or all."),
    out: Path = typer.Option(Path("runs/demo"), "--out", "-o", help="Where the runs and the report go."),
    set_: list[str] = SET_OPTION,
    serve: bool = typer.Option(False, "--serve", help="Then serve the gallery it builds."),
    again: bool = typer.Option(False, "--again", help="Train anew what is already there."),
    quiet: bool = QUIET_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Compare methods on drawn characters, and build a gallery.

    A model is updated task after task, and old galleries are never re-indexed. Trains each method over the same tasks
    on a CPU, as many at a time as there are cores, tests on characters that were never trained on, writes one report,
    and builds a gallery with the models of the method that came out best. Finished runs in the folder are kept and
    shown again; one that was interrupted goes on.
    """
    from holdfast.cli.demo_gallery import finish_with_gallery
    from holdfast.recipes.assemble import SharedData
    from holdfast.recipes.load import read_recipe
    from holdfast.recipes.schema import check_recipe
    from holdfast.reports import write_report

    names = method_names(methods)
    # Every recipe is checked before the first one runs.
    recipes = {name: check_recipe(read_recipe("demo", [f"method.name={name}", *set_])) for name in names}
    if again:
        for name in names:
            _remove(out / name)
    shared = SharedData()
    found = _side_by_side(recipes, out, shared, quiet or json)
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
        gallery.tell()
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


def _side_by_side(
    recipes: "dict[str, Recipe]", out: Path, shared: "SharedData", quiet: bool
) -> dict[str, dict[str, Any]]:
    """Run every recipe, one core each: networks this small gain little from a second thread, and nothing on busy cores.

    With one thread each the numbers are the same whatever the number of cores.
    """
    import torch

    from holdfast.cli.sweep_progress import sweep_watcher
    from holdfast.errors import HoldfastError
    from holdfast.recipes.sweep import PlannedRun, run_all

    runs = [PlannedRun(name, recipe, f"holdfast demo --methods {name}") for name, recipe in recipes.items()]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with sweep_watcher(list(recipes), quiet=quiet) as watch:
            found = run_all(
                runs,
                out,
                shared=shared,
                device=torch.device("cpu"),
                parallel=min(len(runs), os.cpu_count() or 1),
                watch=watch,
            )
    except KeyboardInterrupt:
        typer.echo("holdfast: interrupted; what is done is kept: demo again goes on", err=True)
        raise typer.Exit(130) from None
    finally:
        torch.set_num_threads(threads)
    metrics = {}
    for name, result in found.items():
        if isinstance(result, HoldfastError):
            raise HoldfastError(f"{name}: {result}")
        metrics[name] = result
    return metrics


def method_names(methods: str) -> list[str]:
    """Names separated by commas, or all of the table; an unknown one is refused."""
    from holdfast.errors import HoldfastError
    from holdfast.methods import METHODS, method_class

    names = list(METHODS) if methods == "all" else [name.strip() for name in methods.split(",") if name.strip()]
    if not names:
        raise HoldfastError(f"--methods {methods!r} names none; known: {', '.join(METHODS)}")
    for name in names:
        method_class(name)
    return names


def _remove(folder: Path) -> None:
    """Delete an earlier run, and nothing that is not one."""
    import shutil

    from holdfast.errors import HoldfastError
    from holdfast.run_folder import RunFolder

    if folder.exists():
        if not RunFolder(folder).recipe.exists():
            raise HoldfastError(f"{folder}: not a run folder, so it is not deleted; choose another --out")
        shutil.rmtree(folder)
