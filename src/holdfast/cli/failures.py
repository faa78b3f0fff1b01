"""Failures of many runs, each reason once: data that is not there fails every run in the same way."""

from collections.abc import Mapping


def but_for_the_run(name: str, reason: str) -> str:
    """A reason without the run's own name, which is also its folder's."""
    return reason.replace(name, "RUN")


def failure_lines(failed: Mapping[str, str]) -> list[str]:
    """A line for each reason, with the first run that failed for it and how many others did."""
    groups: dict[str, list[str]] = {}
    for name, reason in failed.items():
        groups.setdefault(but_for_the_run(name, reason), []).append(name)
    return [
        f"{first}{f' and {len(others)} more' if others else ''} failed: {failed[first]}"
        for first, *others in groups.values()
    ]
