"""The command: bridged queries and mixed galleries of a finished run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import typer

from holdfast.bridges.choice import FEWEST_PAIRS
from holdfast.cli.evaluate import print_protocols
from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION
from holdfast.cli.show import print_json, print_table, say
from holdfast.core.run_folder import RunFolder
from holdfast.core.storage import write_json
from holdfast.core.wording import counted, decimal, per_cent, with_options
from holdfast.train.devices import resolve_device
from holdfast.train.encoders import ModelFeatures
from holdfast.train.evaluation import evaluate_run
from holdfast.train.evaluation.finished_run import keep_extras, read_finished
from papers.bridged_runs.mixed_gallery import arrivals, arrivals_by_class, mixed_gallery
from papers.bridged_runs.run_bridges import RunBridges, fit_run_bridges


def measure(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder."),
    bridge: str = typer.Option("auto", "--bridge", help="A kind of bridge such as rotation, none, or auto."),
    bridge_pairs: int = typer.Option(1000, "--bridge-pairs", min=1, help="Gallery images to fit each bridge on."),
    mixed: bool = typer.Option(False, "--mixed", help="Also search a gallery that each model embedded a part of."),
    arrival: Literal["even", "by-class"] = typer.Option(
        "even", "--arrival", help="With --mixed: each model embeds a part of every class, or classes of its own."
    ),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Measure a finished run with bridged queries; writes metrics.json.

    Queries of each model are carried into the space of each older model by a map fitted on a sample of the gallery, the
    same images for all models; stored vectors stay as they are. One kind is used for the whole run.

    Example: python -m papers.bridged_runs runs/mine --mixed
    """
    folder, where = RunFolder(run), resolve_device(device)
    known, models, labels, maps = read_finished(folder)
    extra = list(next(iter(known["protocols"].values())).get("extras", {}))
    fitted = None
    if not mixed or len(labels[1]) >= FEWEST_PAIRS:  # before the matrices, which take long, because it may be refused
        fitted = fit_run_bridges(
            [model.gallery for model in models], [model.basis for model in models], kind=bridge, pairs=bridge_pairs
        )
    metrics = dict(known)
    by_class = arrival == "by-class"
    arrived = arrivals_by_class(labels[1], len(models)) if by_class else arrivals(labels[1], len(models), 0)
    if mixed:
        found = mixed_gallery(models, *labels, arrival=arrived, maps=maps, device=where)
        metrics["mixed"] = {"arrival": arrival, **found}
    if fitted is not None:
        bridged = evaluate_run(
            models,
            *labels,
            protocols=list(known["protocols"]),
            extra_scores=extra,
            query_maps=fitted.maps,
            device=where,
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
    if fitted is not None:
        _print_bridged(metrics["bridged"], extra)
    if "mixed" in metrics:
        print_mixed(metrics["mixed"])
        if "mixed" in metrics.get("bridged", {}):
            print_mixed_ways(metrics["mixed"], metrics["bridged"])


def _mixed_ways(
    models: Sequence[ModelFeatures],
    labels: tuple[np.ndarray, np.ndarray],
    arrived: np.ndarray,
    fitted: RunBridges,
    plain: bool,
    device: torch.device,
) -> list[dict[str, Any]]:
    """Mixed galleries with bridges and with scaled scores, and with one of the two.

    plain: whether queries as they are can be compared with stored vectors, because the method learned no maps.
    """
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


def _print_bridged(bridged: dict[str, Any], extra: Sequence[str]) -> None:
    print_protocols("bridged queries, protocol", "AC-R", bridged["protocols"], extra)
    compared = ", ".join(
        f"{with_options(one['kind'], one['options'])} {decimal(one['value'], 3)}" for one in bridged["candidates"]
    )
    say(
        f"Bridge: {bridged['kind']}, fitted on {counted(bridged['pairs'], 'gallery image')}. "
        f"Mean {bridged['measure'] or 'value'} on held-out images: {compared}."
    )
    say("AC-R is counted like AC, with bridged queries. It is not the AC of the paper.")


def print_mixed(mixed: dict[str, Any]) -> None:
    """Print the accuracy on the mixed gallery and on the re-embedded one, and the share of each version."""
    say(
        f"Mixed gallery, newest model: accuracy {per_cent(mixed['accuracy'][-1])} %; "
        f"re-embedded: {per_cent(mixed['reindexed'][-1])} %"
    )
    print_table(
        ["model", "% of gallery", "% of first places", "exposure at 1", "at 10", "offset"],
        [
            [
                str(version["model"]),
                per_cent(version["share_of_gallery"]),
                per_cent(version["share_of_hits"]),
                *(decimal(version.get("exposure", {}).get(places)) for places in ("1", "10")),
                decimal(version["score_offset"], 4, "+"),
            ]
            for version in mixed["versions"]
        ],
        right=range(6),
    )
    say("Exposure: share of the first places, relative to a full re-embedding; 1 is fair.")
    say("Offset: how much higher the items score as stored than re-embedded, with queries of their class.")


def print_mixed_ways(mixed: dict[str, Any], bridged: dict[str, Any]) -> None:
    """Print accuracy and the range of exposure over the versions, with and without bridges and scaled scores.

    mixed: the record of the mixed gallery with queries and scores as they are.
    bridged: the record of bridges, with the same gallery searched in other ways under "mixed".
    """
    plain = {"query_vectors": "plain", "scores": "raw", **mixed}
    rows = []
    for way in (plain, *bridged["mixed"]):
        name = bridged["kind"] if way["query_vectors"] == "bridged" else "none"
        ranges = [exposure_range(way["versions"], places) for places in ("1", "10")]
        rows.append([name, way["scores"], per_cent(way["accuracy"][-1]), *ranges])
    print_table(["bridge", "scores", "accuracy %", "exposure at 1", "exposure at 10"], rows, right=range(2, 5))
    say(
        "Exposure: the lowest and the highest of all versions. Scaled: scores of older versions are made comparable "
        "with those of the newest, measured on held-out images."
    )


def exposure_range(versions: Sequence[dict[str, Any]], places: str) -> str:
    """The lowest and the highest exposure of the versions, such as "0.81 to 1.02"; a dash if none is known."""
    ratios = [ratio for one in versions if (ratio := one.get("exposure", {}).get(places)) is not None]
    known = [ratio for ratio in ratios if ratio == ratio]
    return f"{min(known):.2f} to {max(known):.2f}" if known else "–"
