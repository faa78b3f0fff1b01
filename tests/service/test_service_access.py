"""Tokens, scopes, and what a browser on this machine must not be talked into."""

import hashlib

import pytest
from service_inputs import png

from holdfast.core.errors import HoldfastError
from holdfast.service.access_control import AccessControl, check_bind_address, read_tokens

READ, WRITE = "read-token-of-thirty-two-letters", "write-token-of-thirty-two-letter"
PNG = {"Content-Type": "image/png"}
READING = [
    ("GET", "/v1/gallery"),
    ("GET", "/v1/versions"),
    ("GET", "/metrics"),
    ("GET", "/v1/item?id=a/0"),
    ("GET", "/v1/item/thumbnail?id=a/0"),
    ("POST", "/v1/search/image"),
    ("POST", "/v1/search/vector"),
    ("POST", "/v1/search/id"),
]
WRITING = [
    ("PUT", "/v1/item?id=x"),
    ("POST", "/v1/items"),
    ("DELETE", "/v1/item?id=a/0"),
    ("POST", "/v1/items/delete"),
    ("GET", "/v1/operation?id=x"),
]


@pytest.fixture
def guarded(make_client, tmp_path):
    file = tmp_path / "tokens"
    hashed = hashlib.sha256(WRITE.encode()).hexdigest()
    file.write_text(f"# who may what\nread {READ}  # the shop\n\nwrite sha256:{hashed}\n")
    return make_client(AccessControl(read_tokens(file, {})))


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def test_every_endpoint_requires_its_scope(guarded):
    described = guarded.get("/v1/openapi.json").json()["paths"]
    public = {"/v1/health", "/v1/ready"}
    listed = {(method.upper(), path) for path, methods in described.items() for method in methods if path not in public}
    assert {(method, path.partition("?")[0]) for method, path in READING + WRITING} == listed
    for method, path in READING + WRITING:
        for headers in ({}, bearer("wrong" * 8), bearer(""), {"Authorization": f"Basic {READ}"}, bearer(READ[:-1])):
            answer = guarded.request(method, path, headers=headers)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "token" in answer.json()["error"]["reason"]
    for method, path in READING:
        assert guarded.request(method, path, headers=bearer(READ)).status_code not in (401, 403)
    for method, path in WRITING:
        assert guarded.request(method, path, headers=bearer(READ)).status_code == 403
    assert guarded.get("/v1/gallery", headers=bearer(READ)).json()["items"] == 40


def test_scopes(guarded, pictures):
    image = png(pictures[0])
    assert guarded.post("/v1/search/image", content=image, headers={**PNG, **bearer(READ)}).status_code == 200
    assert guarded.put("/v1/item?id=x", content=image, headers={**PNG, **bearer(WRITE)}).status_code == 200
    assert [guarded.get("/v1/gallery", headers=bearer(token)).json()["scope"] for token in (READ, WRITE)] == [
        "read",
        "write",
    ]
    for path in ("/", "/v1/health", "/v1/ready", "/v1/openapi.json"):
        assert guarded.get(path, headers={"Host": "gallery.example"}).status_code == 200


def test_without_tokens_only_local_clients(client, make_client):
    for host in ("127.0.0.1", "localhost:8321", "[::1]:80", "LOCALHOST", "127.0.0.2:8321"):
        assert client.get("/v1/gallery", headers={"Host": host}).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost@evil.example", "", "[", "128.0.0.1"):
        answer = client.get("/v1/gallery", headers={"Host": host})
        assert answer.status_code == 421
        assert "items" not in answer.json()
    here = {"Host": "127.0.0.1:8321"}
    for origin in (
        "http://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://127.0.0.1:9999",
        "http://[::1]",
    ):
        refused = client.request("DELETE", "/v1/item?id=a/0", headers={**here, "Origin": origin})
        assert (refused.status_code, refused.json()["error"]["reason"]) == (403, "the Origin header names another site")
    own = client.post("/v1/search/id", json={"id": "a/0"}, headers={**here, "Origin": "http://localhost:8321"})
    assert own.status_code == 200
    assert "access-control-allow-origin" not in own.headers
    proxied = make_client(AccessControl({}, ["Gallery.example"]))
    for host in ("gallery.example", "127.0.0.1:8321"):  # a proxy passes on its name without the port, or another name
        headers = {"Host": host, "Origin": "https://gallery.example:8443"}
        assert proxied.get("/v1/gallery", headers=headers).status_code == 200


def test_two_hosts_or_origins_are_refused(client, guarded):
    own = [("Host", "127.0.0.1"), ("Origin", "http://127.0.0.1")]
    for further in (("Host", "evil.example"), ("Host", "127.0.0.1"), ("Origin", "http://127.0.0.1")):
        for service in (client, guarded):
            answer = service.get("/v1/health", headers=[further, *own])
            assert answer.status_code == 400
            assert answer.json()["error"]["reason"] == "the request has two Host or two Origin headers"


def test_binding():
    for host in ("127.0.0.1", "localhost", "::1", "127.0.0.9"):
        check_bind_address(host, AccessControl({}))
    for host in ("0.0.0.0", "::", "192.168.1.2", "gallery.example", ""):
        with pytest.raises(HoldfastError, match="for this machine only"):
            check_bind_address(host, AccessControl({}))
        check_bind_address(host, AccessControl({b"x" * 32: "read"}))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("read short", "line 1: a token must have at least 16"),
        (f"read {READ}\nadmin {READ}", "line 2: expected 'read TOKEN'"),
        (READ, "line 1: expected"),
        ("write sha256:12", "64 hex digits"),
        ("# nothing", "no tokens"),
        ("read Schlüssel-Schlüssel-Schlüssel", "line 1: a token must be ASCII"),
    ],
)
def test_token_files(tmp_path, text, reason):
    file = tmp_path / "tokens"
    file.write_text(text)
    with pytest.raises(HoldfastError, match=reason) as raised:
        read_tokens(file, {})
    assert READ not in str(raised.value)


def test_tokens_of_the_environment(tmp_path):
    assert read_tokens(None, {}) == {}
    access = AccessControl(read_tokens(None, {"HOLDFAST_READ_TOKEN": READ, "HOLDFAST_WRITE_TOKEN": WRITE}))
    assert access.scope(f"Bearer {READ}") == "read"
    assert access.scope(f"bearer {WRITE}") == "write"
    mounted = AccessControl(read_tokens(None, {"HOLDFAST_READ_TOKEN": f"{READ}\n"}))  # as from a mounted file
    assert mounted.scope(f"Bearer {READ}") == "read"
    (tmp_path / "tokens").write_text(f"read {READ}", encoding="utf-8-sig")
    assert AccessControl(read_tokens(tmp_path / "tokens", {})).scope(f"Bearer {READ}") == "read"
    with pytest.raises(HoldfastError, match="the token file cannot be read"):
        read_tokens(tmp_path / "nowhere", {})


@pytest.mark.parametrize("header", ["bearer {}", "BEARER  {} ", "Bearer {}"])
def test_one_token_is_one_client_however_its_header_is_written(header):
    from starlette.requests import HTTPConnection

    token = "t" * 20
    access = AccessControl(read_tokens(None, {"HOLDFAST_WRITE_TOKEN": token}))

    def client(text):
        return access.client(HTTPConnection({"type": "http", "headers": [(b"authorization", text.encode())]}))

    assert client(header.format(token)) == client(f"Bearer {token}")
    assert client(header.format("u" * 20)) != client(f"Bearer {token}")
