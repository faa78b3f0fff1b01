"""``python -m papers.run_pages``: one self-contained page that compares runs."""

import sys
from pathlib import Path

import typer

from holdfast.core.errors import HoldfastError
from holdfast.core.storage import check_file_writable
from papers.run_pages.page import write_report

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def report(
    folders: list[Path] = typer.Argument(..., help="Run folders to compare.", metavar="FOLDERS"),
    out: Path = typer.Option(Path("report.html"), "--out", "-o", help="The page to write."),
    title: str | None = typer.Option(None, "--title", help="The title of the page."),
) -> None:
    """Write one page that compares runs: tables, matrices, curves and settings. It loads nothing from the network.

    Example: python -m papers.run_pages runs/a runs/b --out compare.html
    """
    check_file_writable(out)
    write_report(folders, out, title=title)
    typer.echo(f"Report: {out.resolve()}")


def main() -> None:
    """Run the command. An error that the user can correct is one line on stderr and exit status 1."""
    try:
        app(prog_name="python -m papers.run_pages")
    except (HoldfastError, OSError) as error:
        sys.stderr.write(f"papers.run_pages: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
