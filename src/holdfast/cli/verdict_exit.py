"""Exit status of verbs that give a verdict, if they cannot: 2 for bad input or a defect, 3 if nothing can be judged."""

import contextlib
import traceback
from collections.abc import Callable, Iterator

import typer

from holdfast.cli.show import print_json
from holdfast.core.errors import HoldfastError

BAD_INPUT = 2
"""Exit status of a verb that could not give a verdict, so that no pipeline reads a failure as a verdict."""
NO_VERDICT = "not judged"


@contextlib.contextmanager
def exit_on_failure(what: str, *, json: bool, refuse: Callable[[str], None] = lambda reason: None) -> Iterator[None]:
    """Exit with status 2 if the block fails: one line on stderr for bad input, a traceback for a defect.

    what: the name of the act in the reason of a crash, such as "check".
    json: also print a JSON object with the reason on stdout.
    refuse: called with the reason, to print it in another form.

    An error with an ``exit_code`` of its own, such as ``NotJudgedError``, gives that status.
    """
    try:
        yield
    except (HoldfastError, OSError) as error:
        status = int(getattr(error, "exit_code", BAD_INPUT))
        _tell(str(error), status, json, refuse)
        typer.echo(f"holdfast: {error}", err=True)
        raise typer.Exit(status) from None
    except (typer.Exit, typer.Abort):
        raise
    except Exception as error:  # Python exits with 1 after a crash, which a pipeline would read as a verdict
        _tell(f"the {what} itself failed ({type(error).__name__}: {error})", BAD_INPUT, json, refuse)
        traceback.print_exc()
        raise typer.Exit(BAD_INPUT) from None


def _tell(reason: str, status: int, json: bool, refuse: Callable[[str], None]) -> None:
    if json:
        print_json({"verdict": NO_VERDICT, "reason": reason, "exit_code": status})
    else:
        refuse(reason)
