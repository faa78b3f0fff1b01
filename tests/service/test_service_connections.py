"""What a client sees and the log says if it hangs up, asks for a path with a slash too many, or sends odd images."""

import io
import logging

import pytest
from PIL import Image
from service_inputs import metric_values

from holdfast.core.errors import HoldfastError
from holdfast.embedders.pixels import open_image


@pytest.mark.parametrize("path", ["/v1/search/image", "/v1/search/vector", "/v1/items", "/v1/items/delete"])
def test_a_client_that_hangs_up_leaves_no_traceback(client, caplog, path):
    """Half of the body arrives. Without a handler starlette raises, and uvicorn logs the traceback."""
    kind = b"image/png" if path.endswith("image") else b"application/json"
    messages = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])
    sent = []
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"",
        "headers": [(b"host", b"127.0.0.1"), (b"content-type", kind), (b"content-length", b"1000")],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip

    async def receive():
        return next(messages)

    async def send(message):
        sent.append(message)

    with caplog.at_level(logging.WARNING):
        client.portal.call(client.app, scope, receive, send)
    assert not caplog.records
    assert sent[0]["status"] == 499
    counted = metric_values(client.get("/metrics").text)
    assert any("499" in labels for _, labels in counted)


@pytest.mark.parametrize("path", ["/v1/gallery/", "/v1/versions/", "/v1/health/", "/v1/search/id/"])
def test_no_redirection_is_built_from_the_request(client, path):
    answer = client.get(path, headers={"Host": "127.0.0.1:9"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers


def test_no_object_addresses_in_errors_of_images(monkeypatch):
    def fail(file, **options):
        raise OSError(f"cannot read {file!r} twice\n")

    monkeypatch.setattr(Image, "open", fail)
    with pytest.raises(HoldfastError) as caught:
        open_image(b"image")
    assert str(caught.value) == "the image: not readable as an image (cannot read the file twice)"
    assert " at 0x" in repr(io.BytesIO())  # what the decoder's message contained
