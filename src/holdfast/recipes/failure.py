"""What is kept of a run that failed while others go on."""

from holdfast.errors import HoldfastError

INTERRUPTED = "interrupted"
"""All that is said of a run that was stopped: no failure, for the same command again goes on with it."""


def failure_of(error: Exception) -> HoldfastError:
    """The error in one line, without the frames it came through.

    Those hold the run's networks, graphs and streams, and a sweep keeps its failures until the last run has ended.
    """
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    failure = error if isinstance(error, HoldfastError) else HoldfastError(f"{type(error).__name__}: {reason}")
    for each in (error, failure):
        each.__traceback__ = each.__context__ = each.__cause__ = None
    return failure
