"""The command line: one file per verb, a thin layer over the library. Heavy imports wait until a verb needs them."""

import sys

import typer

from holdfast.cli import demo, doctor, evaluate, ls, metrics, report, run

app = typer.Typer(
    name="holdfast",
    help="Train embedding models that can be updated and replaced without re-indexing what is already stored.",
    epilog="Start with: holdfast demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("evaluate")(evaluate.evaluate)
app.command("metrics")(metrics.metrics)
app.command("report")(report.report)
app.command("ls")(ls.ls)
app.command("doctor")(doctor.doctor)


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", help="Print the version and exit.", is_eager=True),
) -> None:
    if version:
        from holdfast.environment import version as installed

        typer.echo(f"holdfast {installed('holdfast')}")
        raise typer.Exit


def main() -> None:
    """Run a verb; what a user can put right ends in one line on stderr and exit status 1."""
    from holdfast.errors import HoldfastError

    try:
        app()
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("holdfast: interrupted; what is finished is kept, --resume goes on from there\n")
        sys.exit(130)
