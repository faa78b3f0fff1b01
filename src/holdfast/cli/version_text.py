"""What ``gallery register`` and ``gallery versions`` print about a version: its checks, its bridges and its sizes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import typer

from holdfast.cli.show import say
from holdfast.core.wording import counted

if TYPE_CHECKING:
    from holdfast.gallery.gallery_versions import Version

_SHORT = {"yes": "passes", "no": "fails", "not shown": "not shown"}


def describe_checks(version: "Version") -> str:
    """The answers of the checks in a few words, with the older versions of each answer together."""
    older: dict[str, list[int]] = {}
    for check in version.checks:
        loss = check.get("loss")
        answer = _SHORT[loss["answer"]] if loss else str(check["verdict"])
        older.setdefault(answer, []).append(int(check["version"]))
    return "; ".join(f"on {describe_numbers(numbers)}: {answer}" for answer, numbers in older.items())


def describe_numbers(numbers: list[int]) -> str:
    """Numbers as text, with three or more consecutive ones as a range: "1, 3 to 6"."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and rows[-1][-1] == number - 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]} to {row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)


def print_checks(version: "Version") -> None:
    """Print each check of a version with its evidence: the answer, the gain, the verdict, and the items used."""
    from holdfast.reports.check_report import answers_sentence, gain_with_interval, needed_sentences

    for check in version.checks:
        record: dict[str, Any] = {"kind": "check", "clustered": False, **check}
        where = f"Queries of version {version.number} on version {check['version']}"
        if not check.get("loss"):
            say(f"{where}: {check['verdict']} ({check['reason']}).")
            continue
        say(f"{where}. {answers_sentence(record)} Gain {gain_with_interval(check['gain'])} points.")
        say(f"Measured with {check['items_used']['text']}; among {counted(check['gallery'], 'stored item')}.")
        for sentence in needed_sentences(record):
            say(sentence)


EXPOSURE_TEXT = "Exposure: 1 = shown as often as after re-embedding, 0 = never shown."


def print_bridges(version: "Version", with_items: Sequence[int] = (), *, attached: bool = False) -> None:
    """Print the bridges of a version, and which others have none.

    with_items: older versions that have items.
    attached: whether the gallery is an attached store, whose bridge is fitted on vectors that the user gives.
    """
    for record in version.bridges:
        typer.echo("\n".join(describe_bridge(record)))
    missing = sorted(set(with_items) - {record["version"] for record in version.bridges})
    if missing:
        reason = "give --new-vectors for one" if attached else "because fewer than 10 items could be embedded"
        typer.echo(f"version {describe_numbers(missing)}: no bridge, {reason}")
    if version.unreachable:
        has = "has no items and no bridge, and cannot take items any more"
        typer.echo(f"version {describe_numbers(version.unreachable)}: {has}")
    if any(record["exposure"] for record in version.bridges):
        typer.echo(EXPOSURE_TEXT)


def describe_bridge(record: dict[str, Any]) -> list[str]:
    """One or two lines about the bridge to an older version; see ``gallery.version_bridges.bridge_record``."""
    bridged = record["kind"] != "none"
    scaled = record["exposure_without"] not in (None, record["exposure"])  # of queries as they are: by their scores
    what = record["kind"] if bridged else f"queries as they are, {'scores scaled, ' if scaled else ''}judged"
    measured = f"{record['measure']} {record['value']:.2f}"
    if bridged and record["without"] is not None:
        measured += f" ({record['without']:.2f} without)"
    lines = [f"version {record['version']}: {what} from {counted(record['pairs'], 'pair')}; {measured}"]
    if record["exposure"]:
        shown = describe_exposures(record["exposure"])
        without = record["exposure_without"]
        plain = "not found" if without is None else ", ".join(map(_ratio, without.values()))
        without_text = f" ({plain} without)" if bridged or scaled else ""
        lines.append(f"  expected exposure of its items: {shown}{without_text}")
    else:
        lines.append("  exposure not measured: that takes about 170 pairs")
    if not record["agrees_beyond_chance"]:
        lines.append("  it finds no more than random hits would")
    return lines


def describe_exposures(ratios: dict[str, float | None]) -> str:
    """Exposure by number of first places: "0.91 at 1, 0.93 at 10"."""
    return ", ".join(f"{_ratio(ratio)} at {k}" for k, ratio in ratios.items())


def _ratio(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


def describe_sizes(version: "Version") -> str:
    return f"features of {counted(version.dim, 'number')}, stored as {version.stored_dim}"
