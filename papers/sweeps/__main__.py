"""``python -m papers.sweeps``: many runs on one device."""

import sys

import typer

from holdfast.core.errors import HoldfastError
from papers.sweeps.command import sweep

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(sweep)


def main() -> None:
    """Run the command. An error that the user can correct is one line on stderr and exit status 1."""
    try:
        app(prog_name="python -m papers.sweeps")
    except (HoldfastError, OSError) as error:
        sys.stderr.write(f"papers.sweeps: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
