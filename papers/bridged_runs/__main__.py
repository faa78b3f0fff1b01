"""``python -m papers.bridged_runs``: bridged queries and mixed galleries of a finished run."""

import sys

import typer

from holdfast.core.errors import HoldfastError
from papers.bridged_runs.command import measure

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
app.command()(measure)


def main() -> None:
    """Run the command. An error that the user can correct is one line on stderr and exit status 1."""
    try:
        app(prog_name="python -m papers.bridged_runs")
    except (HoldfastError, OSError) as error:
        sys.stderr.write(f"papers.bridged_runs: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
