"""The page about a check: verdict first, everything escaped, nothing fetched."""

import re

import numpy as np
import pytest

from holdfast import Bridge, check, check_history, check_mixed
from holdfast.reports import check_markdown, render_check

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
        "resamples": 200,
        **more,
    }


def bare():
    return {name: value[0] for name, value in sets().items() if name != "resamples"}


def model(noise):
    return (clustered(LABELS, noise, 1), LABELS), (clustered(GALLERY_LABELS, noise, 2), GALLERY_LABELS)


def turned():
    """The new queries and gallery in a space of 9 numbers, and a bridge to the old one."""
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((12, 12)))[0][:, :9]
    gallery = clustered(GALLERY_LABELS, 1.0, 1)
    bridge = Bridge.fit(gallery @ turn, gallery, kind="rotation")
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
    return check_mixed(parts, new["queries_new"], everything, resamples=200, **options)


RECORDS = {
    "bridged": lambda: check(**sets(queries_old=sets()["queries_old"][:2], **turned()[0])),
    "bridged in one space": lambda: check(**sets(bridge=lambda queries: queries)),
    "agreement": lambda: check(**{**bare(), "gallery_new": clustered(GALLERY_LABELS, 0.5, 5)}, resamples=200),
    "mixed": mixed,
    "mixed gate": lambda: mixed(min_kept=0.999, min_exposure=0.99),
    "compatible": lambda: check(**sets()),
    "not shown": lambda: check(**sets(0.8, 0.8)),
    "incompatible": lambda: check(**sets(0.8, 1.5)),
    "not inferior": lambda: check(**sets(0.8, 0.8, min_gain=-0.3)),
    "demanding": lambda: check(**sets(0.8, 0.8, min_gain=0.3)),
    "ceiling": lambda: check(**sets(gallery_new=(clustered(GALLERY_LABELS, 0.5, 5), NAMES[GALLERY_LABELS]))),
    "pairs": lambda: check(**sets(score="tar@far=0.01")),
    "overlap": lambda: check(**bare()),
    "sizes": lambda: check(**{**bare(), "queries_new": np.hstack([bare()["queries_new"]] * 2)}),
    "history": lambda: check_history([model(1.5), model(1.0), model(1.0)], resamples=200),
}


@pytest.mark.parametrize("name", list(RECORDS))
def test_every_kind_of_result_makes_a_page(name):
    record = RECORDS[name]().as_json()
    page = render_check(record)
    body = page[page.index("<body>") :]
    said = {"could not be judged": "Could not be judged"}.get(record["verdict"], record["verdict"].capitalize())
    assert body.index(f"<p>{said}: ") < 400  # the verdict comes first
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=|url\(|@import|https?://", page)
    assert "None" not in re.sub(r"<title>.*?</title>", "", body)
    assert "nan" not in body
    assert "another training seed" in body
    markdown = check_markdown(record)
    assert markdown.startswith(f"### {said}: ")
    assert "<script" not in markdown
    assert "None" not in markdown


def test_the_sentences_hold_the_numbers():
    found = check(**sets())
    page = render_check(found.as_json())
    for estimate in (found.self_test, found.cross_test):
        assert f"{100 * estimate.value:.2f} %" in page
    assert f"{found.changes.lost} queries were right and become wrong, {found.changes.gained} the other way" in page


@pytest.mark.parametrize(
    ("min_gain", "noises", "said"),
    [
        (0.0, (1.5, 0.8), "the new model's queries do better than the old model's."),
        (0.0, (0.8, 1.5), "the new model's queries do worse than the old model's."),
        (-0.3, (0.8, 0.8), "the new model's queries do at most 30 points worse than the old model's."),
        (0.3, (0.8, 0.8), "the new model's queries do not gain the required 30 points."),
    ],
)
def test_the_verdict_names_what_was_asked(min_gain, noises, said):
    page = render_check(check(**sets(*noises, min_gain=min_gain)).as_json())
    assert said.replace("'", "&#x27;") in page


def test_names_stay_text_in_a_comment():
    """A label may not break the table, show a picture, or call somebody."""
    evil = ["a\\|b", "![x](http://a/b.png)", "`code`", "recall@ @everyone", "two\r\nlines", "**bold**"]
    names = np.array([evil[i % 6] + str(i) for i in range(10)])
    record = check(
        (clustered(GALLERY_LABELS, 1.0, 1), names[GALLERY_LABELS]),
        (clustered(LABELS, 0.8, 2), names[LABELS]),
        (clustered(LABELS, 3.0, 3), names[LABELS]),
        resamples=200,
    ).as_json()
    text = check_markdown(record)
    assert r"a\\\|b" in text
    assert r"!\[x\](http" in text
    assert r"\`code\`" in text
    assert "recall@ @\u200beveryone" in text
    assert "two lines" in text
    assert "**bold**" not in text
    table = [line for line in text.splitlines() if line.startswith("| a")]
    assert len(table) == len([name for name in names if name.startswith("a")])
    assert check_markdown({**record, "score": "recall@5"}).count("recall@5") >= 2


def test_too_few_queries_are_said_to_be():
    few = {name: tuple(part[:8] for part in value) if "queries" in name else value for name, value in sets().items()}
    text = check_markdown(check(**few).as_json())
    assert text.startswith("### Not shown: 8 queries are too few to tell; at least 10 are needed.")


def test_a_threshold_that_did_not_change_comes_with_its_interval():
    found = check(**sets(0.8, 0.8))
    change = found.thresholds.far_change
    assert found.thresholds.verdict == "holds"
    told = f"no change is shown (interval {100 * change.low:+.3f} to {100 * change.high:+.3f} points)"
    assert told.replace("-", "\u2212") in check_markdown(found.as_json())
