"""Whoever decodes many pictures is told how far it is."""

import os

import pytest

from holdfast.data import decode, load_split
from holdfast.data.decode import tell, telling
from made_up_sets import tiny_imagenet_20


@pytest.fixture
def few(tmp_path, monkeypatch):
    monkeypatch.delenv("HOLDFAST_CACHE", raising=False)
    monkeypatch.setattr(decode, "AT_A_TIME", 5)
    tiny_imagenet_20(tmp_path)
    return tmp_path


def told_of(root):
    told = []
    with telling(lambda *event: told.append(event)):
        load_split("tinyimagenet20", "train", root, incomplete=True)
    return told


def test_from_nothing_to_all_and_once_only(few):
    name = "tinyimagenet20-train"
    assert told_of(few) == [(name, 0, 12), (name, 5, 12), (name, 10, 12), (name, 12, 12)]
    assert told_of(few) == []
    tell(name, 1, 12)  # and nobody is told outside


def test_what_is_not_kept_says_so(few, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert {name for name, _, _ in told_of(few)} == {
        "tinyimagenet20-train (not kept, as the data root cannot be written to; HOLDFAST_CACHE names another folder)"
    }
    monkeypatch.setenv("HOLDFAST_CACHE", "off")  # whoever says that need not be told
    assert {name for name, _, _ in told_of(few)} == {"tinyimagenet20-train"}
