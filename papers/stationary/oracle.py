"""``python -m papers.stationary oracle``: how well any map of queries could search the first gallery of a run.

The queries of a strong last model are mapped into the space of the first model by maps that are fitted on the gallery
itself. No training of the last model that keeps the first gallery can be expected to do better than the best of them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from holdfast.cli.options import DATA_OPTION, DEVICE_OPTION

TASKS = 2
FIRST = "simplex_hoc"
"""Its first model is trained with the simplex and without a previous model."""

STRONG = ("er", "cvs", "simplex_hoc")
"""Methods whose last models give the queries."""

MAPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("rotation", {}),
    ("affine", {"ridge": 0.001}),
    ("affine", {"ridge": 0.1}),
    ("residual_mlp", {"steps": 3000}),
)


def oracle(
    runs: Path = typer.Option(..., "--runs", help="Where `reproduce experiments` wrote its run folders (--out)."),
    results: Path = typer.Option(Path("results"), "--results", help="Folder of results."),
    data: Path | None = DATA_OPTION,
    device: str = DEVICE_OPTION,
) -> None:
    """Measure the best that any map of queries can do on the first simplex gallery, at 2 tasks."""
    from holdfast.core.environment import describe
    from holdfast.core.storage import write_json
    from holdfast.train.devices import resolve_device
    from holdfast.train.experiments.assemble import SharedData
    from papers.stationary.studies.table2_experiments import ORACLE

    where = resolve_device(device)
    rows = list(_measured(runs, SharedData(data), where))
    for row in rows:
        typer.echo(" ".join(str(value) for value in row.values()))
    what = {"tasks": TASKS, "first": FIRST, "pairs": "the whole gallery", "rows": rows}
    write_json(results / ORACLE, {"environment": describe(str(where)), **what})


def _measured(runs: Path, shared: Any, where: Any) -> Iterator[dict[str, Any]]:
    import torch

    from holdfast.bridges import BRIDGES
    from holdfast.core.run_folder import RunFolder
    from holdfast.train.encoders import Encoder, ModelFeatures, extract
    from holdfast.train.evaluation import evaluate_run
    from holdfast.vectors.lengths import unit
    from papers.stationary.residual_mlp import fit_residual_mlp
    from papers.stationary.studies.table2_experiments import unchanged_run

    first_run = unchanged_run(FIRST, TASKS)
    images = shared.open_set(first_run.recipe)

    def features(method: str, number: int, readout: Any) -> ModelFeatures:
        folder = RunFolder(runs / unchanged_run(method, TASKS).path.with_suffix(""))
        encoder = Encoder.from_pretrained(folder.model(number))
        encoder.readout = readout
        return ModelFeatures(*(extract(encoder, part, device=where) for part in (images.query, images.gallery)))

    for readout in ("simplex", "backbone"):
        old = features(FIRST, 1, readout)
        for method in STRONG:
            new = features(method, TASKS, readout)
            rows = [unit(one.gallery) for one in (new, old)]
            for kind, options in MAPS:
                fit: Any = fit_residual_mlp if kind == "residual_mlp" else BRIDGES[kind].fit
                fitted = fit(*rows, **options)

                def carry(queries: torch.Tensor, fitted: Any = fitted) -> torch.Tensor:
                    return torch.from_numpy(fitted(queries.cpu().numpy())).to(queries.device)

                found = evaluate_run(
                    [old, new],
                    images.query.labels,
                    images.gallery.labels,
                    query_maps={(1, 0): carry},
                    device=where,
                )
                yield {
                    "readout": readout,
                    "queries": method,
                    "map": kind,
                    "options": options,
                    **{
                        f"{protocol} {name}": round(found[protocol]["matrix"][t][k], 5)
                        for protocol in ("template", "instance")
                        for name, t, k in (("C11", 0, 0), ("C21", 1, 0), ("C22", 1, 1))
                    },
                }
