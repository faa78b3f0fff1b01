"""What a notebook shows of a result: the numbers of the record, and nothing that a name could smuggle in."""

import re
from html.parser import HTMLParser

from holdfast.checks import check, check_history


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells += [data] if self.open and self.open[-1] == "td" and data.strip() else []


def cells(text):
    parser = Cells()
    parser.feed(text)
    assert not parser.open, "every element is closed"
    return parser.cells


def test_a_pair_shows_its_verdict_and_intervals(sets):
    result = check(**sets)
    text = result._repr_html_()
    assert "Better than keeping the old model: yes" in text
    assert f"{100 * result.self_test.value:.2f}" in cells(text)
    assert f"{100 * result.gain.low:+.2f} to {100 * result.gain.high:+.2f}" in cells(text)


def test_a_printed_result_is_short(sets):
    shown = str(check(**sets))
    assert shown.startswith("<CheckResult: Better than keeping the old model: yes; At most 1 point lost: yes; gain +")
    assert shown.endswith("exit code 0>")
    assert len(shown) < 160
    bare = [sets[name][0] for name in ("gallery", "queries_old", "queries_new")]
    assert str(check(*bare)).startswith("<CheckResult: not judged: no labels")


def test_a_history_shows_its_matrix_and_escapes_names(sets):
    models = [(sets["queries_old"], sets["gallery"]), (sets["queries_new"], sets["gallery_new"])]
    result = check_history(models, names=["<script>", "b"])
    text = result._repr_html_()
    for t, k in ((0, 0), (1, 0), (1, 1)):
        assert any(cell.startswith(f"{100 * result.matrix[t][k].value:.1f}") for cell in cells(text))
    assert not re.search("<script", text)
