"""Requests made up from the OpenAPI description, right ones and wrong ones: no 5xx, and the service lives on.

HOLDFAST_FUZZ_EXAMPLES sets how many there are of each kind for each endpoint.
"""

import contextlib
import os

import hypothesis
import pytest
from httpx2 import InvalidURL
from service_inputs import ADDRESS

schemathesis = pytest.importorskip("schemathesis")

EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ_EXAMPLES", "5"))


NARROW = {
    "vector": {
        "type": "array",
        "items": {"type": "number", "minimum": -9, "maximum": 9},
        "minItems": 32,
        "maxItems": 32,
    },
    "version": {"enum": [1, None]},
    "indexed_by": {"enum": [[1], None]},
    "image": {"const": None},
    "k": {"type": "integer", "minimum": 1, "maximum": 50},
    "label": {"type": "string", "pattern": "^[a-z]{1,9}$"},
    "metadata": {
        "type": "object",
        "propertyNames": {"pattern": "^[a-z]{1,9}$"},
        "additionalProperties": {"type": "boolean"},
    },
}


def narrowed(schema):
    """The description with vectors, versions and fields that this gallery has: hardly any request gets past these."""
    for name, model in schema["components"]["schemas"].items():
        if name in ("VectorSearch", "IdSearch", "NewItem", "NewItems"):
            model["properties"] |= {key: NARROW[key] for key in model["properties"].keys() & NARROW.keys()}
            if name == "NewItem":
                model["properties"]["id"] = NARROW["label"]
                model["required"] = ["id", "vector"]
            if "filter" in model["properties"]:
                model["properties"]["filter"]["anyOf"][0]["propertyNames"] = {"enum": ["price", "label"]}
    return schema


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("as_described", [True, False], ids=["as described", "narrowed"])
def test_no_5xx(client, gallery, as_described):
    description = client.get("/v1/openapi.json").json()
    schema = schemathesis.openapi.from_dict(description if as_described else narrowed(description))
    met: dict[str, set[int]] = {}

    def send(case):
        request = case.as_transport_kwargs(base_url=ADDRESS)
        try:
            answer = client.request(**{name: value for name, value in request.items() if value is not None})
        except InvalidURL:  # longer than this client sends at all
            hypothesis.reject()
        met.setdefault(f"{case.method.upper()} {case.path}", set()).add(answer.status_code)
        assert answer.status_code < 500, (case.as_curl_command(), answer.text)
        if answer.status_code >= 400:
            assert answer.json()["error"]["reason"]

    settings = hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    modes = list(schemathesis.GenerationMode)
    for operation in schema.get_all_operations():
        for mode in modes if as_described else modes[:1]:
            with contextlib.suppress(hypothesis.errors.Unsatisfiable):  # nothing can be wrong with a plain GET
                settings(hypothesis.given(operation.ok().as_strategy(mode))(send))()
    assert len(met) == sum(len(methods) for methods in description["paths"].values())
    if not as_described:
        assert 200 in met["POST /v1/search/vector"] & met["POST /v1/items"]
    assert client.get("/v1/health").json() == {"status": "ok"}
    assert gallery.stats()["items"] > 0
