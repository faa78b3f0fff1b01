"""``holdfast evaluate``: evaluate a finished run again, with more scores."""

from pathlib import Path

import typer

from holdfast.cli.options import DEVICE_OPTION, JSON_OPTION
from holdfast.cli.show import fraction, print_json, print_mixed, print_table, scores_row
from holdfast.wording import counted, per_cent


def evaluate(
    run: Path = typer.Argument(..., help="A run folder."),
    scores: str = typer.Option("", "--scores", help="More scores, separated by commas: top5, mAP, auc, tar@far=0.01."),
    mixed: bool = typer.Option(False, "--mixed", help="Also search a gallery that each model embedded a part of."),
    device: str = DEVICE_OPTION,
    json: bool = JSON_OPTION,
) -> None:
    """Evaluate a finished run again from its stored features.

    Computes the compatibility matrices, and writes metrics.json and the report. No model is run; only the stored
    features are read, and the maps if the method learned some. Each extra score gives a matrix under "extras"; the
    table shows its mean over all pairs of query and gallery model.
    """
    from holdfast.devices import resolve_device
    from holdfast.encoders import FeatureStore, read_space_maps
    from holdfast.errors import HoldfastError
    from holdfast.evaluation import evaluate_run, mixed_gallery
    from holdfast.evaluation.protocols import score_of
    from holdfast.metrics import average_accuracy
    from holdfast.reports import write_report
    from holdfast.run_folder import RunFolder, not_a_run_error
    from holdfast.scenarios.slot_compatibility import refuse_incompatible_slots_in_run
    from holdfast.storage import read_json, write_json

    folder = RunFolder(run)
    if not (folder.recipe.exists() and folder.metrics.exists()):
        raise not_a_run_error(run)
    extra = [name.strip() for name in scores.split(",") if name.strip()]
    for name in extra:
        score_of(name)
    store = FeatureStore(folder.features)
    known = read_json(folder.metrics)
    if not isinstance(known, dict) or not {"method", "protocols", "tasks"} <= known.keys():
        raise HoldfastError(f"{folder.metrics}: not the record of a run")
    models = store.read_all()
    if len(models) != len(known["tasks"]):
        raise HoldfastError(
            f"{folder.features}: has features of {counted(len(models), 'model')}, but the run has "
            f"{len(known['tasks'])}; run holdfast run ... --resume to compute what is missing"
        )
    refuse_incompatible_slots_in_run(folder, len(models))
    lost = [number for number in known.get("maps", []) if not folder.space_map(number).exists()]
    if lost:
        raise HoldfastError(f"{folder.models}: the map to model {lost[0]} is missing, and old galleries need it")
    maps, where = read_space_maps(folder, len(models)), resolve_device(device)
    judged = evaluate_run(
        models,
        *store.labels(),
        protocols=list(known["protocols"]),
        extra_scores=extra,
        maps=maps,
        device=where,
    )
    for name, protocol in judged.items():  # the features are the same, so earlier extra scores are kept
        kept = {**known["protocols"][name].get("extras", {}), **protocol.get("extras", {})}
        if kept:
            protocol["extras"] = kept
    metrics = {**known, "protocols": judged}
    if mixed or "mixed" in known:
        metrics["mixed"] = mixed_gallery(models, *store.labels(), maps=maps, device=where)
    write_json(folder.metrics, metrics)
    write_report([folder.path], folder.report)
    if json:
        print_json({**metrics, "run": str(run)})
        return
    means = {
        name: [per_cent(average_accuracy(protocol["extras"][score])) for score in extra]
        for name, protocol in judged.items()
    }
    print_table(
        [f"{metrics['method']}, protocol", "AC", "AA %", "ACA %", *(f"{name} %" for name in extra)],
        [[*scores_row(name, protocol), *means[name]] for name, protocol in judged.items()],
        right=range(1, 4 + len(extra)),
    )
    self_tests = ", ".join(fraction(row[t]) for t, row in enumerate(judged[next(iter(judged))]["matrix"]))
    typer.echo(f"Self-tests, {next(iter(judged))}: {self_tests}")
    if "mixed" in metrics:
        print_mixed(metrics["mixed"])
