"""What a sweep says of runs that failed, in one line for each reason."""

from collections.abc import Mapping


def failure_lines(failed: Mapping[str, str]) -> list[str]:
    """One line per reason: the first run that failed for it, and how many others did.

    failed: the reason by the run's name. Reasons that differ in the run's name (and folder) alone are equal.
    """
    groups: dict[str, list[str]] = {}
    for name, reason in failed.items():
        groups.setdefault(reason.replace(name, "RUN"), []).append(name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} failed: {failed[first]}"
        for first, *others in groups.values()
    ]
