"""What a notebook shows of a result: the numbers of the record, and nothing that a name could smuggle in."""

import re
from html.parser import HTMLParser

from holdfast.checks import check, check_history
from holdfast.checks.result import check_html, history_html


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.cells = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.cells += [data] if self.open and self.open[-1] == "td" else []


def cells(text):
    parser = Cells()
    parser.feed(text)
    assert not parser.open, "every element is closed"
    return parser.cells


def test_a_pair_shows_its_verdict_and_intervals(sets):
    result = check(**sets)
    text = result._repr_html_()
    assert result.verdict in text
    shown = cells(text)
    assert shown[:2] == ["self-test", f"{100 * result.self_test.value:.2f}"]
    assert f"{100 * result.gain.low:.2f} to {100 * result.gain.high:.2f}" in shown


def test_a_printed_result_is_short(sets):
    result = check(**sets)
    shown = str(result)
    assert shown.startswith("<CheckResult: Better than keeping the old model: yes; At most 1 point lost: yes; gain +")
    assert shown.endswith("exit code 0>")
    assert len(shown) < 160
    bare = [sets[name][0] for name in ("gallery", "queries_old", "queries_new")]
    assert str(check(*bare)).startswith("<CheckResult: not judged: no labels")


def test_names_are_escaped():
    nothing = [[None, None], [None, None]]
    text = history_html("compatible", "a < b", ["<script>", "b"], nothing, nothing, ["<i>"])
    assert not re.search("<script|<i>", text)
    assert cells(text) == []
    assert "<table" not in check_html("x", "y", [("gain", None)], [])


def test_a_history_shows_its_matrix(sets):
    models = [(sets["queries_old"], sets["gallery"]), (sets["queries_new"], sets["gallery_new"])]
    result = check_history(models)
    shown = cells(result._repr_html_())
    assert shown == [f"{100 * result.matrix[t][k].value:.2f}" for t, k in ((0, 0), (1, 0), (1, 1))]
    gain = result.gains[1][0]
    small = re.findall(r"<small>(.*?)</small>", result._repr_html_())
    assert small == [f"gain {100 * gain.low:+.2f} to {100 * gain.high:+.2f}"]
