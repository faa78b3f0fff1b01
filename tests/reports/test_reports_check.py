"""The page about a check: verdict first, everything escaped, nothing fetched."""

import re

import numpy as np
import pytest

from holdfast import Bridge, check, check_history, check_mixed
from holdfast.reports import check_report, html_page, markdown, refusal_report, write_report
from holdfast.reports.check_report import headline, lead_sentences
from holdfast.reports.report import Bar


def as_markdown(record):
    return markdown(check_report(record))


def as_page(record):
    return html_page(check_report(record))


EVIL = '<script>alert("x")</script>'


def clustered(labels, noise, seed):
    centres = np.random.default_rng(7).standard_normal((10, 12))
    return centres[labels] + noise * np.random.default_rng(seed).standard_normal((len(labels), 12))


LABELS, GALLERY_LABELS = np.arange(300) % 10, np.arange(80) % 10
NAMES = np.array([f"{EVIL}{i}" for i in range(10)])


def sets(old_noise=1.5, new_noise=0.8, **more):
    return {
        "gallery": (clustered(GALLERY_LABELS, 1.0, 1), NAMES[GALLERY_LABELS]),
        "queries_old": (clustered(LABELS, old_noise, 2), NAMES[LABELS], [f"{EVIL}{i}" for i in range(300)]),
        "queries_new": (clustered(LABELS, new_noise, 3), NAMES[LABELS], [f"{EVIL}{i}" for i in range(300)]),
        **more,
    }


def bare():
    return {name: value[0] for name, value in sets().items()}


def model(noise):
    return (clustered(LABELS, noise, 1), LABELS), (clustered(GALLERY_LABELS, noise, 2), GALLERY_LABELS)


def turned():
    """The new queries and gallery in a space of 9 numbers, and a bridge to the old one."""
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((12, 12)))[0][:, :9]
    gallery = clustered(GALLERY_LABELS, 1.0, 1)
    bridge = Bridge.fit(new=gallery @ turn, old=gallery, kind="rotation")
    return {"queries_new": (clustered(LABELS, 0.8, 3) @ turn, NAMES[LABELS]), "bridge": bridge}, gallery @ turn


def mixed(**options):
    new, gallery_new = turned()
    ids = np.array([f"{EVIL}{i}" for i in range(80)])
    old = (clustered(GALLERY_LABELS, 1.0, 1)[:40], NAMES[GALLERY_LABELS[:40]], ids[:40])
    parts = [
        (old, new["bridge"], new["bridge"].scale),
        ((gallery_new[40:], NAMES[GALLERY_LABELS[40:]], ids[40:]), None, None),
    ]
    everything = (gallery_new, NAMES[GALLERY_LABELS], ids)
    return check_mixed(parts, new["queries_new"], everything, **options)


RECORDS = {
    "bridged": lambda: check(**sets(queries_old=sets()["queries_old"][:2], **turned()[0])),
    "bridged in one space": lambda: check(**sets(bridge=lambda queries: queries)),
    "agreement": lambda: check(**{**bare(), "gallery_new": clustered(GALLERY_LABELS, 0.5, 5)}),
    "mixed": mixed,
    "mixed gate": lambda: mixed(min_exposure=0.99),
    "compatible": lambda: check(**sets()),
    "not shown": lambda: check(**sets(0.8, 0.8)),
    "incompatible": lambda: check(**sets(0.8, 1.5)),
    "not inferior": lambda: check(**sets(0.8, 0.8, max_loss=0.3)),
    "demanding": lambda: check(**sets(0.8, 0.8, max_loss=-0.3)),
    "ceiling": lambda: check(**sets(gallery_new=(clustered(GALLERY_LABELS, 0.5, 5), NAMES[GALLERY_LABELS]))),
    "overlap": lambda: check(**bare()),
    "history": lambda: check_history([model(1.5), model(1.0), model(1.0)]),
}


@pytest.mark.parametrize("name", list(RECORDS))
def test_every_kind_of_result_makes_a_page(name):
    record = RECORDS[name]().as_json()
    page = as_page(record)
    body = page[page.index("<body>") :]
    loss, better = record.get("loss"), record.get("better")
    said = f"{better['question']}: {better['answer']}" if better else "Not judged: "
    if name == "mixed gate":
        said = "Asked for: "
    assert body.index(f"<p>{said}") < 400  # the answers come first
    assert loss is None or f"{loss['question']}: {loss['answer']}" in body[:800]
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
    assert "None" not in re.sub(r"<title>.*?</title>", "", body)
    assert "nan" not in body
    markdown = as_markdown(record)
    for page_text in (body, markdown):  # agreement of hits and a refusal have no interval
        assert ("another training seed" in page_text) == (name != "overlap")
        assert name != "overlap" or "bootstrap" not in page_text
    assert markdown.startswith(f"### {said}")
    assert "<script" not in markdown
    assert "None" not in markdown


def test_the_sentences_hold_the_numbers():
    found = check(**sets())
    page = as_page(found.as_json())
    for estimate in (found.self_test, found.cross_test):
        assert f"{100 * estimate.value:.2f} %" in page
    assert f"{found.changes.lost} queries score lower and {found.changes.gained} higher (sign test: p " in page


def test_names_stay_text_in_a_comment():
    """A label may not break the table, show a picture, or call somebody."""
    evil = ["a\\|b", "![x](http://a/b.png)", "`code`", "recall@ @everyone", "two\r\nlines", "**bold**"]
    names = np.array([evil[i % 6] + str(i) for i in range(10)])
    record = check(
        (clustered(GALLERY_LABELS, 1.0, 1), names[GALLERY_LABELS]),
        (clustered(LABELS, 0.8, 2), names[LABELS]),
        (clustered(LABELS, 3.0, 3), names[LABELS]),
    ).as_json()
    text = as_markdown(record)
    assert r"a\\\|b" in text
    assert r"!\[x\](http" in text
    assert r"\`code\`" in text
    assert "recall@ @\u200beveryone" in text
    assert "two lines" in text
    assert "**bold**" not in text
    table = [line for line in text.splitlines() if line.startswith("| a")]
    assert len(table) == len([name for name in names if name.startswith("a")])
    assert as_markdown({**record, "score": "recall@5"}).count("recall@5") >= 2


def test_names_of_models_do_not_break_the_matrix_in_a_comment():
    text = as_markdown(check_history([model(1.5), model(1.0)], names=["a|b", "@all"]).as_json())
    head, _, *rows = [line for line in text.splitlines() if line.startswith("|")]
    assert r"a\|b" in head
    assert "@\u200ball" in head
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in (head, *rows)} == {4}


def test_too_few_queries_are_said_to_be():
    few = {name: tuple(part[:8] for part in value) if "queries" in name else value for name, value in sets().items()}
    text = as_markdown(check(**few).as_json())
    assert text.startswith(
        "### Better than keeping the old model: not shown. At most 1 point lost: not shown: 8 queries are "
    )
    assert text.count("too few") == 1


def lead(record):
    return [headline(record), *lead_sentences(record)]


def test_what_people_decide_by_comes_first():
    found = check(**sets(0.9, 0.8, gallery_new=(clustered(GALLERY_LABELS, 0.9, 5), NAMES[GALLERY_LABELS])))
    first, kept, *_ = lead(found.as_json())
    answers = (
        f"Better than keeping the old model: {found.better.answer}. At most 1 point lost: {found.loss.answer} (95 %)."
    )
    assert first == answers
    interval = f"{100 * found.kept.low:.1f} to {100 * found.kept.high:.1f}"
    assert kept == f"Keeps {100 * found.kept.value:.1f} % of re-embedding (95 % interval {interval})."


def test_the_number_of_queries_that_would_settle_it_is_said():
    record = check(**sets(0.8, 0.8)).as_json()
    gain = record["gain"]["value"]
    open_answer = {**record["loss"], "answer": "not shown", "reason": "it includes -1 points", "units_needed": 1234}
    settled = f'About 1,300 queries would settle "At most 1 point lost" (now 300), if the gain stays {100 * gain:+.2f} '
    settled += "points."
    assert settled.replace("-", "−") in lead({**record, "loss": open_answer})
    hopeless = lead({**record, "loss": {**open_answer, "units_needed": None}})
    assert any(
        line.startswith('More queries will not settle "At most 1 point lost": the gain of ') for line in hopeless
    )


def test_known_classes_decide_and_say_so():
    record = check(**sets(0.8, 0.8)).as_json()
    new = {**{name: {**record[name], "answer": "no"} for name in ("better", "loss")}, "gain": record["gain"]}
    told = " ".join(lead({**record, "which": "known classes", "parts": {"known classes": record, "new classes": new}}))
    assert told.startswith("Better than keeping the old model on known classes: ")
    assert "Known classes decide: an old index holds no items of new classes. New classes: no, gain " in told


def test_a_bar_is_drawn_whole():
    """Also where gain and bound are negative, and where an interval has no end."""
    bar = Bar.of(-0.5, -0.3, -0.1, (-0.5, 0.0), -0.01)
    assert (bar.low, bar.value, bar.high, bar.bound) == (0, 40, 80, 98)
    assert Bar.of(-9.0, 0.0, 9.0, (-1.0, 1.0)) == Bar(0, 50, 100)
    record = check(**sets()).as_json()
    record["gain"] = {**record["gain"], "high": None}
    assert as_page(record).count("<svg") == 3
    nothing = {**record["self_test"], "value": None, "low": None, "high": None}
    assert as_page({**record, "self_test": nothing}).count("<svg") == 2


def test_a_report_is_written_by_its_suffix(tmp_path):
    report = check_report(check(**sets()).as_json())
    for name, start in (("a.html", "<!doctype html>"), ("a.md", "### Better than")):
        write_report(report, tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    assert markdown(refusal_report("it is a|b", "holdfast check")) == "### Not judged: it is a\\|b\n"
