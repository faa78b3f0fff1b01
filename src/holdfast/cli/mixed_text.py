"""What is printed of a gallery of mixed versions, in 80 columns."""

from typing import Any

from holdfast.cli.show import per_cent, print_table, say


def print_mixed(mixed: dict[str, Any]) -> None:
    """The newest model's accuracy on the gallery as it grew and embedded anew, and what each version has of it."""
    say(
        f"Mixed gallery, newest model: accuracy {per_cent(mixed['accuracy'][-1])} %; "
        f"re-indexed: {per_cent(mixed['reindexed'][-1])} %"
    )
    print_table(
        ["embedded by model", "% of gallery", "% of first places", "offset"],
        [
            [
                str(version["model"]),
                per_cent(version["share_of_gallery"]),
                per_cent(version["share_of_hits"]),
                _signed(version["score_offset"]),
            ]
            for version in mixed["versions"]
        ],
        right=range(4),
    )
    say("Offset: how much higher its items score as stored than embedded anew, with queries of their class.")


def _signed(offset: float | None) -> str:
    return "–" if offset is None or offset != offset else f"{offset:+.4f}"
