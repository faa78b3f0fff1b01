"""The lines that say how far decoding is."""

import pytest

from holdfast.cli import progress
from holdfast.cli.progress import DecodingLines


@pytest.fixture
def at(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = DecodingLines()

    def call(seconds, done, total=1000, name="birds"):
        now[0] = seconds
        shown(name, done, total)

    return call


def test_a_line_now_and_then_and_one_at_the_end(at, capsys):
    for seconds, done in ((5, 0), (6, 10), (8, 100), (9, 120), (18, 500), (31, 1000)):
        at(seconds, done)
    assert capsys.readouterr().err.splitlines() == [
        "decoding birds: 100 of 1,000 images, 0:27 left",
        "decoding birds: 500 of 1,000 images, 0:13 left",
        "decoded birds: 1,000 images in 0:26",
    ]


def test_what_is_quick_needs_no_word(at, capsys):
    for seconds, done in ((5, 0), (6, 500), (6.5, 1000), (7, 0), (8, 1000)):
        at(seconds, done)
    assert capsys.readouterr().err == ""
