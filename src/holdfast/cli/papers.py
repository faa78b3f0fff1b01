"""``holdfast reproduce`` and ``holdfast theory``: say where these commands are now."""

import typer

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


def _moved(command: str) -> None:
    from holdfast.errors import HoldfastError

    raise HoldfastError(
        f"{command} belongs to the study of the paper, which is not part of the installed package; "
        f"in a checkout of the repository run: python -m papers.stationary {command}"
    )


def reproduce(context: typer.Context) -> None:
    """Moved: python -m papers.stationary reproduce."""
    _moved("reproduce")


def theory(context: typer.Context) -> None:
    """Moved: python -m papers.stationary theory."""
    _moved("theory")
