"""What docs/service.md and docs/reference/http.md tell a reader to type works, and they list what there is."""

import io
import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from holdfast.cli import app
from holdfast.gallery import Item
from holdfast.service.owner_tasks import TASKS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = "".join((DOCS / name).read_text(encoding="utf-8") for name in ("service.md", "reference/http.md"))
LINES = re.findall(r"^curl .*127\.0\.0\.1:8321.*$", PAGE, re.MULTILINE)


def sent(line, folder):
    """A curl line as method, path, headers and body; an option that is not known here is an error."""
    words, found = iter(shlex.split(line)[1:]), {"method": "GET", "headers": {}, "content": None}
    for word in words:
        if word in ("--data-binary", "-T", "--json"):
            value = next(words)
            found["content"] = value if word == "--json" else (folder / value.removeprefix("@")).read_bytes()
            found["method"] = "PUT" if word == "-T" else "POST"
            if word == "--json":
                found["headers"]["Content-Type"] = "application/json"
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            found["headers"][name] = value
        elif word == "-X":
            found["method"] = next(words)
        elif word == "-o":
            next(words)
        else:
            address = urlsplit(word)
            found["url"] = f"{address.path}?{address.query}"
    return found


def test_curl(client, gallery, tmp_path):
    Image.linear_gradient("L").convert("RGB").save(tmp_path / "query.jpg")
    gallery.add([Item("cats/2", path=tmp_path / "query.jpg", metadata={"price": 2})])
    some = np.random.default_rng(0).standard_normal(gallery.newest().stored_dim).round(3).tolist()
    lines = [line.replace("[0.1, 0.2, 0.3]", str(some)) for line in LINES]
    answers = [client.request(**sent(line, tmp_path)) for line in lines]
    assert [answer.status_code for answer in answers] == [200] * 7
    image, put, vector, by_id, item, thumbnail, deleted = answers
    assert len(vector.json()["hits"]) == 3
    assert image.json()["hits"][0]["id"] == "cats/2"
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert list(json.loads(shown)) == list(image.json())
    assert list(json.loads(shown)["hits"][0]) == list(image.json()["hits"][0])
    assert put.json() == {"stored": 1, "version": 1}
    assert by_id.json()["hits"][0]["id"] == "cats/2"
    assert item.json()["metadata"] == {"price": 3}
    assert Image.open(io.BytesIO(thumbnail.content)).size == (128, 128)
    assert deleted.json()["deleted"] == ["cats/1"]


def test_endpoints_and_options(client):
    listed = set(re.findall(r"`(GET|PUT|POST|DELETE) (/[a-z0-9/._]*)", PAGE))
    there = {
        (m.upper(), path) for path, methods in client.get("/v1/openapi.json").json()["paths"].items() for m in methods
    }
    admin = {("POST", f"/v1/admin/{name}") for name in TASKS}  # for the owner only
    assert there | {("GET", "/v1/openapi.json"), ("GET", "/"), ("GET", "/static/")} | admin == listed
    verb = get_command(app).commands["serve"]
    options = {name for option in verb.params for name in option.opts}
    curls = {"--data-binary", "--json"}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - curls <= options
    for name in re.findall(r"`(holdfast_\w+)", PAGE):
        assert f"\n# TYPE {name} " in client.get("/metrics").text, name


@pytest.mark.parametrize("name", ["HOLDFAST_READ_TOKEN", "HOLDFAST_WRITE_TOKEN"])
def test_environment_is_named(name):
    from holdfast.service.access_control import TOKEN_VARIABLES

    assert name in TOKEN_VARIABLES.values()
    assert name in PAGE
