"""The web page in a real browser: all kinds of queries, the results, and text that must not become markup."""

import re
import shutil
from urllib.parse import quote

import numpy as np
import pytest
from page_browser import GIVE, chromium, served, until, visits
from service_inputs import png

from holdfast.gallery import Gallery, Item
from holdfast.service.access_control import AccessControl, read_tokens
from holdfast.service.body_limits import Limits

pytestmark = [pytest.mark.slow, pytest.mark.ci]

TOKEN = "read-token-of-thirty-two-letters"
HOSTILE_ID = "<img src=x onerror=window.hacked=1>\"'&amp;" + "W" * 200
HOSTILE = "\u202e" + HOSTILE_ID  # ids hold no marks of writing direction


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def gallery(filled, models, tmp_path_factory):
    """40 items of the first version, one of the second, which was not checked on anything."""
    folder = shutil.copytree(filled, tmp_path_factory.mktemp("page") / "shop")
    with Gallery.open(folder) as opened:
        opened.register(models[1], force=True)
        vector = -np.ones(32)  # far from the pictures
        opened.add([Item(HOSTILE_ID, vector=vector, label=HOSTILE, metadata={"price": 99, "note": HOSTILE})])
        yield opened


@pytest.fixture(scope="module")
def address(gallery):
    with served(gallery, name="shop") as url:
        yield url


@pytest.fixture
def visit(browser):
    with visits(browser) as open_page:
        yield open_page


def shown(page):
    """The ids of the hits once they are there."""
    page.wait_for_selector(".hit")
    return page.locator(".hit .id").all_inner_texts()


def search_ids(gallery, **query):
    return [hit.id for hit in gallery.search(**query)]


def test_search_by_file_filter_and_k(visit, address, gallery, pictures):
    page = visit(address)
    page.wait_for_selector("text=No search yet")
    assert page.inner_text(".gallery-line").split() == ["shop", "41", "items"]
    page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": png(pictures[7])})
    expected = gallery.search(pictures[7], k=12)
    assert shown(page) == [hit.id for hit in expected]
    first = page.locator(".hit").first
    assert first.locator(".figure").inner_text() == f"{expected[0].score:.3f}"
    assert first.locator(".badge").inner_text().split() == ["version", f"v{expected[0].version}"]
    assert first.locator("dl").inner_text().split() == ["price", str(expected[0].metadata["price"])]
    until(page, "document.querySelector('.hit img')?.naturalWidth === 16")
    until(page, "document.querySelector('#preview img').naturalWidth === 16")

    page.fill("#k", "3")
    page.press("#k", "Enter")
    until(page, "document.querySelectorAll('.hit').length === 3")
    page.click("#add-condition")
    page.get_by_label("Field").select_option("price")
    page.get_by_label("Comparison").select_option("lt")
    page.get_by_label("Value").fill("5")
    page.get_by_label("Value").press("Enter")
    wanted = search_ids(gallery, image=pictures[7], k=3, filter={"price": {"lt": 5}})
    until(page, f"document.querySelector('.hit .id')?.innerText === '{wanted[0]}'")
    assert shown(page) == wanted
    page.get_by_label("Value").fill("cheap")
    page.get_by_label("Value").press("Enter")
    assert page.inner_text("#filter-problem") == "price: cheap is not a number"
    page.get_by_label("Value").fill("-1")
    page.get_by_label("Value").press("Enter")
    page.wait_for_selector("text=No other item matches all conditions")


@pytest.mark.parametrize("way", ["paste", "drop"])
def test_search_by_paste_and_drop(visit, address, gallery, pictures, way):
    page = visit(address)
    page.wait_for_selector(".message.idle")
    if way == "drop":
        page.evaluate(GIVE, ["dragenter", list(png(pictures[9]))])
        assert page.is_visible("#dropping")
        assert page.evaluate(GIVE, ["dragover", list(png(pictures[9]))])
    assert page.evaluate(GIVE, [way, list(png(pictures[9]))])
    assert shown(page) == search_ids(gallery, image=pictures[9], k=12)
    assert not page.is_visible("#dropping")


def test_keyboard_alone(visit, address, gallery):
    page = visit(address)
    page.wait_for_selector(".message.idle")
    focused = "document.activeElement.id || document.activeElement.textContent.trim()"

    def tab_to(name):
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == name:
                return
        raise AssertionError(f"no way to {name}: {page.evaluate(focused)}")

    tab_to("skip")
    page.keyboard.press("Enter")
    assert page.evaluate(focused) == "main"
    tab_to("file")
    tab_to("id")
    page.keyboard.type("a/4")
    page.keyboard.press("Enter")
    found = shown(page)
    assert found == search_ids(gallery, id="a/4", k=12)
    tab_to("More like this")
    columns = page.evaluate("getComputedStyle(document.querySelector('#hits')).gridTemplateColumns.split(' ').length")
    place = "[...document.querySelectorAll('.more')].indexOf(document.activeElement)"
    for key, expected in (
        ("ArrowRight", 1), ("ArrowDown", 1 + columns), ("ArrowLeft", columns), ("ArrowUp", 0), ("ArrowLeft", 0),
        ("End", 11), ("Home", 0), ("ArrowRight", 1),
    ):  # fmt: skip
        page.keyboard.press(key)
        assert page.evaluate(place) == expected, key
    outline = "getComputedStyle(document.activeElement.closest('.hit')).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.keyboard.press("Enter")
    until(page, f"document.querySelector('#id').value === '{found[1]}'")
    assert shown(page) == search_ids(gallery, id=found[1], k=12)
    assert page.evaluate(place) == 0  # the focus stays in the hits
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "file"
    page.go_back()
    until(page, "document.querySelector('#id').value === 'a/4'")
    assert shown(page) == found


def test_hostile_strings_stay_text(visit, address):
    page = visit(f"{address}/#like/a%2F4", expect=["TrustedHTML"])
    page.fill("#k", "41")
    page.press("#k", "Enter")
    until(page, "document.querySelectorAll('.hit').length === 40")
    hit = page.locator(".hit", has_text="onerror").last
    assert hit.locator(".id").inner_text() == HOSTILE_ID
    assert hit.locator(".label").inner_text() == HOSTILE
    assert hit.locator("dd").nth(1).inner_text() == HOSTILE
    assert hit.locator(".picture").inner_text() == "no image stored"
    hit.locator(".more").click()
    until(page, "document.querySelector('#preview bdi')?.textContent.includes('onerror')")
    assert page.evaluate("window.hacked") is None
    assert page.locator("img[src='x']").count() == 0
    # Should the page ever make markup of text, the browser refuses.
    refused = "() => { try { document.body.innerHTML = '<b>x</b>'; return ''; } catch (error) { return error.name; } }"
    assert page.evaluate(refused) == "TypeError"


@pytest.fixture(scope="module")
def small_service(gallery):
    with served(gallery, limits=Limits(body=1 << 20)) as url:
        yield url


def test_errors_show_the_reason_of_the_service(visit, small_service):
    page = visit(small_service, expect=["404", "422"])
    page.fill("#id", "nothing like it")
    page.press("#id", "Enter")
    assert "No item 'nothing like it' in the gallery." in page.inner_text(".message.error")
    page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_selector("text=Search failed >> visible=true")
    until(page, "document.querySelector('.message.error')?.textContent.includes('image')")
    assert page.get_attribute(".message.error", "role") == "alert"
    assert re.search(r"This image cannot be used: .*\.$", page.inner_text(".message.error"))
    page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": bytes(2 << 20)})
    page.wait_for_selector("text=This file has 2.0 MiB; the service takes at most 1.0 MiB.")


def test_versions_and_matrix(visit, address, gallery):
    page = visit(f"{address}/#versions")
    page.wait_for_selector(".model")
    rows = page.locator(".model").all_inner_texts()
    assert [re.search(r"v\d", row)[0] for row in rows] == ["v2", "v1"]
    assert "newest" in rows[0]
    assert "newest" not in rows[1]
    weights = gallery.versions()[0].weights_sha256[:12]
    for word in ("first", "small", "60", "32, made from 59", "40 items, 97.6 %", weights):
        assert word in rows[1]
    (check,) = gallery.versions()[1].checks
    cell = page.locator(".verdict")
    gain = f"{100 * check['gain']['value']:+.1f}".replace("-", "−")
    word = {"yes": "passes", "no": "fails", "not shown": "not shown"}[check["loss"]["answer"]]
    assert cell.inner_text().split()[1:] == [*word.split(), gain, "points"]
    detail = page.inner_text("#detail")
    assert f"at most 1 point lost: {check['loss']['answer']}" in detail
    assert check["items_used"]["text"] in detail
    assert check["reason"] in detail
    assert f"{100 * check['self_test']['value']:.1f} %" in detail
    assert f"{check['queries']} queries among {check['gallery']} items" in detail


def test_backfill_progress_and_unknown_verdicts(visit, models, filled, tmp_path):
    folder = shutil.copytree(filled, tmp_path / "g")
    with Gallery.open(folder) as gallery:
        items = gallery.get([f"{'ab'[n % 2]}/{n}" for n in range(40)])
        gallery.delete(items)
        gallery.register(models[1])
        with served(gallery) as url:
            page = visit(url)
            page.wait_for_selector("text=This gallery is empty")
            page.click("#to-versions")
            page.wait_for_selector("text=No items yet")
            assert page.inner_text(".verdict").split() == ["–", "not", "known"]
            assert "not checked" in page.inner_text("#detail")
            gallery.add([Item(str(n), vector=np.eye(32)[n]) for n in range(4)], version=1)
            page.wait_for_selector("text=embedded by v2; 4 items by older versions. No items are being re-embedded.")
            gallery.add([Item(str(n), vector=np.eye(32)[n]) for n in range(2)], version=2)
            page.wait_for_selector("text=/2 items by older versions. Re-embedding \\d+ items? per second/")
            assert page.inner_text(".progress strong") == "50.0 %"
            layers = page.get_attribute("#share-bar", "aria-label")
            assert layers == "Share of the items: v2 50.0 %, v1 50.0 %"


def test_token_dialog_and_storage(visit, gallery, pictures, tmp_path):
    file = tmp_path / "tokens"
    file.write_text(f"read {TOKEN}\n")
    with served(gallery, AccessControl(read_tokens(file, {}))) as url:
        page = visit(url, expect=["401"])
        page.fill("#token", "a-token-that-nobody-knows")
        page.press("#token", "Enter")
        page.wait_for_selector("text=unknown token")
        page.fill("#token", TOKEN)
        page.press("#token", "Enter")
        page.wait_for_selector(".message.idle")
        page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": png(pictures[7])})
        assert shown(page) == search_ids(gallery, image=pictures[7], k=12)
        until(page, "document.querySelector('.hit img')?.naturalWidth === 16")  # fetched with the token
        kept = page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href]")
        assert not any(TOKEN in place for place in kept)
        page.click("#forget-token")
        page.wait_for_selector("#token-dialog[open]")
        page.keyboard.press("Escape")
        page.wait_for_selector("text=A token is needed >> visible=true")


def test_offline_and_back(visit, gallery, address):
    page = visit(address, expect=["ERR_INTERNET_DISCONNECTED"])
    page.wait_for_selector(".message.idle")
    page.context.set_offline(True)
    page.fill("#id", "a/4")
    page.press("#id", "Enter")
    page.wait_for_selector("text=The service does not answer.")
    assert page.is_visible("#offline")
    page.context.set_offline(False)
    assert shown(page) == search_ids(gallery, id="a/4", k=12)
    assert not page.is_visible("#offline")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_phone(visit, address, scheme):
    page = visit(
        f"{address}/#like/{quote(HOSTILE_ID)}",
        width=375,
        height=700,
        color_scheme=scheme,
        has_touch=True,
        reduced_motion="reduce",
    )
    assert len(shown(page)) == 12
    wide = "document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(wide) == 0
    page.click("summary")
    page.fill("#k", "41")
    page.fill("#id", "a/4")
    page.press("#id", "Enter")
    until(page, "document.querySelectorAll('.hit').length === 40")
    assert page.evaluate(wide) == 0
    small = """() => [...document.querySelectorAll('button, input:not([type=checkbox]), .drop label, nav a')]
        .filter((one) => one.offsetParent && one.id !== 'file' && one.getBoundingClientRect().height < 40)
        .map((one) => one.outerHTML)"""
    assert page.evaluate(small) == []
    page.route("**/v1/versions", lambda route: route.fulfill(json=many_versions(route.fetch().json(), 9)))
    page.click("#to-versions")
    until(page, "document.querySelectorAll('.verdict').length === 36")
    assert page.evaluate(wide) == 0


def many_versions(state, count):
    """The service's answer as if there were more versions, each checked on all before it."""
    first, cell = state["versions"][0], state["matrix"][0]
    rows = [{**first, "number": n, "newest": n == count, "share": 1 / count} for n in range(1, count + 1)]
    cells = [{**cell, "query": new, "items": old} for new in range(2, count + 1) for old in range(1, new)]
    return {"items": count * first["items"], "versions": rows, "matrix": cells}


@pytest.fixture(scope="module")
def mixed_gallery(filled, models, pictures, tmp_path_factory):
    """40 items of version 1 and 10 of version 2, whose queries on version 1 are bridged."""
    folder = shutil.copytree(filled, tmp_path_factory.mktemp("mixed") / "shop")
    with Gallery.open(folder) as opened:
        opened.register(models[1], force=True, bridge="rotation")
        opened.add([Item(f"new/{n}", image=255 - pictures[n]) for n in range(10)])
        yield opened


@pytest.fixture(scope="module")
def mixed_address(mixed_gallery):
    with served(mixed_gallery, name="shop") as url:
        yield url


def lines(page, selector):
    """Each element's text on one line."""
    return [" ".join(text.split()) for text in page.locator(selector).all_inner_texts()]


def test_shares_of_items_and_hits(visit, mixed_address, mixed_gallery, pictures):
    page = visit(mixed_address)
    page.wait_for_selector(".message.idle")
    page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": png(pictures[7])})
    hits = mixed_gallery.search(pictures[7], k=12)
    assert shown(page) == [hit.id for hit in hits]
    share = {number: 100 * sum(hit.version == number for hit in hits) / 12 for number in (1, 2)}
    until(page, "document.querySelectorAll('#shares li').length === 2")
    assert lines(page, "#shares li") == [
        f"version v2 holds 20.0 % of the items and {share[2]:.1f} % of these hits",
        f"version v1 holds 80.0 % of the items and {share[1]:.1f} % of these hits",
    ]
    differing = [f"cosine {hit.cosine:.3f}" for hit in hits if f"{hit.cosine:.3f}" != f"{hit.score:.3f}"]
    assert differing
    assert lines(page, ".hit .hint") == differing
    assert lines(page, ".hit .figure") == [f"{hit.score:.3f}" for hit in hits]


def test_search_one_version(visit, mixed_address, mixed_gallery, pictures):
    page = visit(f"{mixed_address}/#like/a%2F4")
    page.wait_for_selector("#version-field:not([hidden])")
    assert lines(page, "#version option") == ["all versions", "version 2", "version 1"]
    for number in (2, 1):
        page.select_option("#version", str(number))
        wanted = search_ids(mixed_gallery, id="a/4", k=12, indexed_by=number)
        until(page, f"document.querySelectorAll('.hit').length === {len(wanted)}")
        assert shown(page) == wanted
        assert f"only items of version v{number}" in lines(page, "#status")[0]
        assert lines(page, "#shares li") == []
    page.set_input_files("#file", {"name": "q.png", "mimeType": "image/png", "buffer": png(pictures[7])})
    wanted = search_ids(mixed_gallery, image=pictures[7], k=12, indexed_by=1)
    until(page, f"document.querySelector('.hit .id')?.innerText === '{wanted[0]}'")
    assert shown(page) == wanted
    page.select_option("#version", "")
    until(page, "document.querySelectorAll('#shares li').length === 2")


def test_bridges_of_a_version(visit, mixed_address, mixed_gallery):
    page = visit(f"{mixed_address}/#versions")
    page.wait_for_selector(".bridges")
    (record,) = mixed_gallery.newest().bridges
    (line,) = lines(page, ".bridges li")
    assert line.startswith(f"to version v1 bridge rotation from {record['pairs']} pairs")
    assert line.endswith("too few pairs to expect an exposure")
    detail = page.inner_text("#detail")
    assert "Gain without the bridge, points" in detail
    assert page.locator(".bridges").count() == 1

    def change(state):
        """More bridges than are shown at once: good, of another size, none and useless."""
        measured = {**record, "exposure": {"1": 0.9125, "10": 0.98}, "agrees_beyond_chance": True}
        state["versions"][1]["bridges"] = [
            {**measured, "exposure_without": {"1": 0.0, "10": None}},
            {**measured, "version": 2, "exposure_without": None},
            {**measured, "version": 3, "kind": "none", "pairs": 2000, "exposure_without": {"1": 0.9, "10": 1}},
            {**measured, "version": 4, "agrees_beyond_chance": False, "exposure": {}, "exposure_without": {}},
        ]
        return state

    page.route("**/v1/versions", lambda route: route.fulfill(json=change(route.fetch().json())))
    until(page, "document.querySelectorAll('.bridges li').length === 4")
    pairs = f"from {record['pairs']} pairs"
    page.click(".bridges summary")
    useless, none, other, good = lines(page, ".bridges li")
    assert (
        useless
        == f"to version v4 bridge rotation {pairs} no bridge connects the models too few pairs to expect an exposure"
    )
    assert none == "to version v3 queries as they are, by 2,000 pairs expected exposure at 1: 0.91, at 10: 0.98"
    assert other.endswith("expected exposure at 1: 0.91 (not found without), at 10: 0.98 (not found without)")
    assert good.endswith("expected exposure at 1: 0.91 (0.00 without), at 10: 0.98 (– without)")
    assert lines(page, ".bridges summary") == ["1 more bridge"]
    page.set_viewport_size({"width": 375, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
