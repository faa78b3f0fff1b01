"""What a notebook shows of the answers to a search."""

import re

from holdfast.gallery.gallery_items import Hit, Hits


def test_hits_are_a_table_without_paths():
    hits = Hits(
        [
            Hit("a", 0.98765, 0.9, 2, "cat", {"shop": "north", "price": 3}, "private/a.png"),
            Hit("<script>", 0.5, 0.5, 1, "<i>", {"<b>": "&"}),
        ]
    )
    text = hits._repr_html_()
    cells = re.findall(r"<td>(.*?)</td>", text)
    assert cells[:6] == ["1", "a", "cat", "0.9877", "2", "shop=north, price=3"]
    assert cells[6:] == ["2", "&lt;script&gt;", "&lt;i&gt;", "0.5000", "1", "&lt;b&gt;=&amp;"]
    assert "private" not in text
    assert hits == [hits[0], hits[1]]  # a list like any other


def test_what_no_hit_has_is_no_column():
    text = Hits([Hit("a", 0.5, 0.5, 1)])._repr_html_()
    assert re.findall(r"<th>(.*?)</th>", text) == ["", "id", "score", "version"]


def test_no_hits():
    assert Hits()._repr_html_() == "<p>no hits</p>"
