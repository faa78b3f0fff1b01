"""What one sees while pictures are decoded: plain lines on stderr, which bars let pass above them."""

import sys
import time

from holdfast.cli.progress import LINE_SECONDS, clock
from holdfast.wording import counted

FIRST_SECONDS = 2.0
"""What takes no longer needs no word."""


class DecodingLines:
    """A line after ``FIRST_SECONDS``, then one in ten seconds with the time left, and one at the end."""

    def __init__(self) -> None:
        self._began = self._due = 0.0
        self._said = False

    def __call__(self, name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not done:
            self._began, self._due, self._said = now, now + FIRST_SECONDS, False
        elif done == total and self._said:
            self._say(f"decoded {name}: {counted(total, 'image')} in {clock(now - self._began)}")
        elif done < total and now >= self._due:
            left = (now - self._began) / done * (total - done)
            self._say(f"decoding {name}: {done:,} of {counted(total, 'image')}, {clock(left)} left")
            self._due, self._said = now + LINE_SECONDS, True

    def _say(self, line: str) -> None:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


def decoding_lines(*, quiet: bool) -> DecodingLines | None:
    return None if quiet else DecodingLines()
