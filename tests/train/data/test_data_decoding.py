"""Whoever decodes many pictures is told how far it is."""

import os

import pytest

import papers.readers  # noqa: F401  its data sets are in the table, too
from holdfast.train.data import decode, load_split
from holdfast.train.data.decode import _report, report_decoding
from made_up_sets import tiny_imagenet_20


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_CACHE", raising=False)
    monkeypatch.setattr(decode, "FILES_PER_TASK", 5)
    tiny_imagenet_20(tmp_path)
    return tmp_path


def told_of(root):
    told = []
    with report_decoding(lambda *event: told.append(event)):
        load_split("tinyimagenet20", "train", root, incomplete=True)
    return told


def test_from_nothing_to_all_and_once_only(few):
    name = "tinyimagenet20-train"
    assert told_of(few) == [(name, 0, 12), (name, 5, 12), (name, 10, 12), (name, 12, 12)]
    assert told_of(few) == []
    _report(name, 1, 12)  # and nobody is told outside


def test_what_is_not_kept_says_so(few, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert {name for name, _, _ in told_of(few)} == {
        "tinyimagenet20-train (not cached: the data root is not writable; set HOLDFAST_CACHE to a folder that is)"
    }
    monkeypatch.setenv("HOLDFAST_CACHE", "off")  # whoever says that need not be told
    assert {name for name, _, _ in told_of(few)} == {"tinyimagenet20-train"}
