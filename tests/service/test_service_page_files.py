"""The page's files, read: nothing from elsewhere, no markup made of text, colours that can be read."""

import re

import pytest
from page_browser import browser_program

from holdfast.service.routes_state import PAGE

FILES = {file.name: file.read_text(encoding="utf-8") for file in sorted(PAGE.iterdir())}
# What stands on what in the style sheets, and the contrast that WCAG 2 AA asks for: letters 4.5, edges of controls 3.
LETTERS = [
    ("ink", "ground"), ("ink", "sheet"), ("ink", "well"), ("soft", "ground"), ("soft", "sheet"), ("soft", "well"),
    ("accent", "sheet"), ("on-accent", "accent"), ("bad", "sheet"), ("bad", "ground"), ("good", "sheet"),
    ("doubt", "sheet"), ("sheet", "bad"),
]  # fmt: skip
EDGES = [("edge", "ground"), ("edge", "sheet"), ("accent", "ground"), ("accent", "sheet")]


def test_there_is_a_browser():
    """Says in every run of the tests whether the page was tried in one."""
    assert browser_program()


def test_everything_named_is_there_and_nothing_else(client):
    named = {"index.html"}
    for name, text in FILES.items():
        assert text.count("\n") <= 300, name
        assert not re.findall(r"(?:https?:)?//[a-z0-9]+\.", text.replace("http://www.w3.org/2000/svg", "")), name
        named |= set(re.findall(r'"/static/([\w.]+)"', text)) | set(re.findall(r'from "\./([\w.]+)"', text))
    assert named == set(FILES)
    for name in FILES:
        assert client.get(f"/static/{name}").status_code == 200


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith((".js", ".html"))])
def test_text_never_becomes_markup_or_code(name):
    found = re.findall(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|eval\(|"
        r"new Function|javascript:|localStorage|document\.cookie|\son\w+=|style=",
        FILES[name],
    )
    assert found == []


@pytest.mark.parametrize("scheme", [0, 1])
def test_contrast(scheme):
    blocks = re.findall(r":root \{(.*?)\}", FILES["base.css"], re.DOTALL)
    colours = {
        name: value for block in blocks[: scheme + 1] for name, value in re.findall(r"--([\w-]+): (#\w{6});", block)
    }
    for wanted, pairs in ((4.5, LETTERS), (3.0, EDGES)):
        for over, under in pairs:
            assert contrast(colours[over], colours[under]) >= wanted, (over, under)
    for kind in ("good", "doubt", "bad", "soft"):  # verdicts stand on a tint of their own colour
        tint = mixed(colours[kind], colours["sheet"], 0.09)
        assert contrast(colours[kind], tint) >= 4.5, kind


def contrast(one, other):
    """WCAG 2's ratio of relative luminances."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour):
    parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def mixed(over, under, share):
    """By sRGB values: for a tint this faint within a hundredth of what the browser mixes."""
    pairs = zip(*([int(colour[n : n + 2], 16) for n in (1, 3, 5)] for colour in (over, under)), strict=True)
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)
