"""The checks of a gallery's version on older versions, as ``gallery register`` and ``gallery versions`` print them."""

from typing import TYPE_CHECKING, Any

from holdfast.cli.show import say
from holdfast.wording import counted

if TYPE_CHECKING:
    from holdfast.gallery.versions import Version

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
    from holdfast.reports.check_text import gain_with_interval, loss_sentence, needed_sentence

    for check in version.checks:
        record: dict[str, Any] = {"kind": "check", "clustered": False, "min_gain": 0.0, **check}
        where = f"Queries of version {version.number} on version {check['version']}"
        if not check.get("loss"):
            say(f"{where}: {check['verdict']} ({check['reason']}).")
            continue
        gain = f"gain {gain_with_interval(check['gain'])} points, strict verdict {check['verdict']}"
        say(f"{where}: {_lower_first(loss_sentence(record))[:-1]}; {gain}.")
        say(f"Measured with {check['items_used']['text']}; among {counted(check['gallery'], 'stored item')}.")
        if needed := needed_sentence(record):
            say(needed)


def _lower_first(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
