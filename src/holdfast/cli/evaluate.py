"""``holdfast evaluate``: evaluate a finished run again, with more scores; or score a matrix in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION, name_list, refuse_given
from holdfast.cli.show import print_json, print_mixed, print_mixed_ways, print_table, say, scores_row
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted, decimal, per_cent, with_options

if TYPE_CHECKING:
    import numpy as np
    import torch

    from holdfast.train.encoders import ModelFeatures
    from holdfast.train.evaluation.run_bridges import RunBridges


MATRIX_SUFFIXES = (".csv", ".json", ".npy")


def evaluate(
    context: typer.Context,
    run: Path = typer.Argument(
        ..., metavar="RUN", help="A run folder, or a matrix: CSV, JSON or NPY (row t: query model)."
    ),
    percent: bool = typer.Option(False, "--percent", help="With a matrix: its scores are per cent."),
    scores: str = typer.Option(
        "", "--scores", help="More scores, separated by commas: top5, recall@10, mAP, auc, tar@far=0.01."
    ),
    bridge: str = typer.Option(
        "", "--bridge", help="Also with bridged queries: a kind of bridge such as rotation, none, or auto."
    ),
    bridge_pairs: int = typer.Option(1000, "--bridge-pairs", min=1, help="Gallery images to fit each bridge on."),
    mixed: bool = typer.Option(
        False,
        "--mixed",
        help="Also search a gallery that each model embedded a part of, with and without bridges (auto by default).",
    ),
    arrival: Literal["even", "by-class"] = typer.Option(
        "even", "--arrival", help="With --mixed: each model embeds a part of every class, or classes of its own."
    ),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Evaluate a finished run again, or score a matrix.

    Computes the compatibility matrices, and writes metrics.json and the report. No model is run; only the stored
    features are read, and the maps if the method learned some. Each extra score gives a matrix under "extras"; the
    table shows its mean over all pairs of query and gallery model.

    With --bridge, queries of each model are carried into the space of each older model by a map fitted on a sample of
    the gallery, the same images for all models; stored vectors stay as they are. One kind is used for the whole run.

    Of a matrix in a file, AC, AA and ACA are printed. Only its lower triangle counts; nan marks two models that cannot
    be compared.

    Example: holdfast evaluate runs/mine --scores top5,mAP
    """
    if not run.is_dir() and run.suffix.lower() in MATRIX_SUFFIXES:
        refuse_given(context, ("scores", "bridge", "bridge_pairs", "mixed", "arrival"), "goes with a run, not a matrix")
        print_matrix_scores(run, percent, json)
        return
    refuse_given(context, ("percent",), "goes with a matrix, not a run")
    if not mixed:
        refuse_given(context, ("arrival",), "goes with --mixed")
        if not bridge:
            refuse_given(context, ("bridge_pairs",), "goes with --bridge or --mixed")
    from holdfast.bridges.choice import FEWEST_PAIRS
    from holdfast.core.run_folder import RunFolder
    from holdfast.core.storage import write_json
    from holdfast.train.devices import resolve_device
    from holdfast.train.encoders import FeatureStore, read_space_maps
    from holdfast.train.evaluation import evaluate_run, mixed_gallery
    from holdfast.train.evaluation.cell_scores import score_of
    from holdfast.train.evaluation.finished_run import finished_run, keep_extras
    from holdfast.train.evaluation.mixed_gallery import arrivals, arrivals_by_class
    from holdfast.train.evaluation.run_bridges import fit_run_bridges
    from holdfast.train.scenarios.slots import refuse_incompatible_slots_in_run

    folder = RunFolder(run)
    extra = name_list(scores)
    for name in extra:
        score_of(name)
    known, models = finished_run(folder)
    refuse_incompatible_slots_in_run(folder, len(models))
    lost = [number for number in known.get("maps", []) if not folder.space_map(number).exists()]
    if lost:
        raise HoldfastError(f"{folder.models}: the map to model {lost[0]} is missing, and old galleries need it")
    maps = read_space_maps(folder, len(models))
    labels = FeatureStore(folder.features).labels()
    where = resolve_device(device)
    protocols = list(known["protocols"])
    kind = bridge or ("auto" if mixed and len(labels[1]) >= FEWEST_PAIRS else "")
    fitted = None
    if kind:  # before the matrices, which take long, because it may be refused
        fitted = fit_run_bridges(
            [model.gallery for model in models], [model.basis for model in models], kind=kind, pairs=bridge_pairs
        )
    judged = evaluate_run(models, *labels, protocols=protocols, extra_scores=extra, maps=maps, device=where)
    keep_extras(judged, known["protocols"])
    metrics = {**known, "protocols": judged}
    by_class = arrival == "by-class"
    arrived = arrivals_by_class(labels[1], len(models)) if by_class else arrivals(labels[1], len(models), 0)
    if mixed:
        found = mixed_gallery(models, *labels, arrival=arrived, maps=maps, device=where)
        metrics["mixed"] = {"arrival": arrival, **found}
    if fitted is not None:
        bridged = evaluate_run(
            models, *labels, protocols=protocols, extra_scores=extra, query_maps=fitted.maps, device=where
        )
        before, described = known.get("bridged", {}), fitted.as_json()
        if all(before.get(key) == described[key] for key in ("kind", "options", "pairs", "seed")):
            keep_extras(bridged, before["protocols"])
        metrics["bridged"] = {**described, "protocols": bridged}
        if mixed:
            metrics["bridged"]["mixed"] = _mixed_ways(models, labels, arrived, fitted, not known.get("maps"), where)
    write_json(folder.metrics, metrics)
    if json:
        print_json({**metrics, "run": str(run)})
        return
    _print_scores(f"{metrics['method']}, protocol", "AC", judged, extra)
    self_tests = ", ".join(decimal(row[t], 3) for t, row in enumerate(judged[next(iter(judged))]["matrix"]))
    say(f"Self-tests, {next(iter(judged))}: {self_tests}")
    if fitted is not None:
        _print_bridged(metrics["bridged"], extra)
    if "mixed" in metrics:
        print_mixed(metrics["mixed"])
        if "mixed" in metrics.get("bridged", {}):
            print_mixed_ways(metrics["mixed"], metrics["bridged"])


def _mixed_ways(
    models: "Sequence[ModelFeatures]",
    labels: "tuple[np.ndarray, np.ndarray]",
    arrived: "np.ndarray",
    fitted: "RunBridges",
    plain: bool,
    device: "torch.device",
) -> list[dict[str, Any]]:
    """Mixed galleries with bridges and with scaled scores, and with one of the two.

    plain: whether queries as they are can be compared with stored vectors, because the method learned no maps.
    """
    from holdfast.train.evaluation import mixed_gallery

    ways: list[tuple[str, str, dict[str, Any]]] = []
    if plain:
        ways.append(("plain", "scaled", {"scales": fitted.plain_scales}))
    if fitted.maps:
        ways.append(("bridged", "raw", {"query_maps": fitted.maps}))
        ways.append(("bridged", "scaled", {"query_maps": fitted.maps, "scales": fitted.scales}))
    return [
        {
            "query_vectors": queries,
            "scores": scores,
            **mixed_gallery(models, *labels, arrival=arrived, **options, device=device),
        }
        for queries, scores, options in ways
    ]


def _print_scores(title: str, compatibility: str, judged: dict[str, Any], extra: Sequence[str]) -> None:
    from holdfast.metrics import average_accuracy

    print_table(
        [title, compatibility, "AA %", "ACA %", *(f"{name} %" for name in extra)],
        [
            [
                *scores_row(name, protocol),
                *(per_cent(average_accuracy(protocol["extras"][score])) for score in extra),
            ]
            for name, protocol in judged.items()
        ],
        right=range(1, 4 + len(extra)),
    )


def _print_bridged(bridged: dict[str, Any], extra: Sequence[str]) -> None:
    _print_scores("bridged queries, protocol", "AC-R", bridged["protocols"], extra)
    compared = ", ".join(
        f"{with_options(one['kind'], one['options'])} {decimal(one['value'], 3)}" for one in bridged["candidates"]
    )
    say(
        f"Bridge: {bridged['kind']}, fitted on {counted(bridged['pairs'], 'gallery image')}. "
        f"Mean {bridged['measure'] or 'value'} on held-out images: {compared}."
    )
    say("AC-R is counted like AC, with bridged queries. It is not the AC of the paper.")


def print_matrix_scores(matrix: Path, percent: bool, json: bool) -> None:
    """Print AC, AA and ACA of a matrix in a file.

    Only the lower triangle counts. nan marks two models that cannot be compared: AC counts such a pair as not
    compatible, AA and ACA are then undefined.
    """
    from holdfast.metrics import compatibility_summary
    from holdfast.metrics.matrix_file import read_matrix

    try:
        scores = read_matrix(matrix, percent)
    except HoldfastError as error:  # name the option as the command line does
        raise HoldfastError(str(error).replace("percent=True", "--percent")) from error
    summary = compatibility_summary(scores)
    if json:
        print_json(summary)
        return
    rows = [
        ["AC", decimal(summary["AC"], 3), "share of (new model, old gallery) pairs that beat the old model itself"],
        ["AA", f"{per_cent(summary['AA'])} %", "mean of all self- and cross-tests"],
        ["ACA", f"{per_cent(summary['ACA'])} %", "mean of the cross-tests alone, 0 where not compatible"],
    ]
    if "AA_computable" in summary:
        rows.append(
            ["AA_computable", f"{per_cent(summary['AA_computable'])} %", "mean of the cells there are; not for ranking"]
        )
    print_table([counted(summary["T"], "model"), "", ""], rows, right=(1,))
