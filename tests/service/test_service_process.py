"""``holdfast serve`` as a process: it says where, takes commands, and stops when what has begun is done."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from service_inputs import png
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.core.errors import HoldfastError
from holdfast.gallery import Gallery

TIMEOUT = 60


def start(*words, **environment):
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "serve", *(str(word) for word in words), "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", **environment},
    )
    line = process.stdout.readline()
    found = re.search(r"at (http://\S+)", line)
    assert found, line + process.stderr.read()
    return process, found[1]


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return json.load(answer)


def command(*words):
    """A verb in this process; what it printed, or what it raised."""
    result = CliRunner().invoke(app, [str(word) for word in words])
    return str(result.exception) if isinstance(result.exception, HoldfastError) else result.stdout


def refuses_connections(address):
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return True
    return False


@pytest.mark.slow
def test_serve_register_and_stop(filled, models, pictures, tmp_path):
    deep = tmp_path / "a folder whose name alone is longer than what the system takes as the address of a socket" / "g"
    folder = Path(shutil.copytree(filled, deep))
    process, url = start(folder)
    try:
        assert "no tokens: every program on this machine" in process.stdout.readline()
        assert get(f"{url}/v1/ready") == {"status": "ready", "version": 1}
        assert json.loads(command("gallery", "stats", folder, "--json"))["items"] == 40
        with pytest.raises(HoldfastError, match="open elsewhere"):
            Gallery.open(folder)
        assert json.loads(command("gallery", "register", folder, models[1], "--force", "--json"))["number"] == 2
        assert "this model is version 2 already" in command("gallery", "register", folder, models[1])
        assert get(f"{url}/v1/gallery")["newest"] == 2

        # Half of a request, the signal, and the other half once new connections are refused.
        host, port = url.removeprefix("http://").split(":")
        image = png(pictures[5])
        head = f"PUT /v1/item?id=late HTTP/1.1\r\nHost: {host}\r\nContent-Type: image/png\r\n"
        head += f"Content-Length: {len(image)}\r\n\r\n"
        with socket.create_connection((host, int(port)), timeout=TIMEOUT) as connection:
            connection.sendall(head.encode() + image[:50])
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            until = time.monotonic() + TIMEOUT
            while not refuses_connections((host, int(port))):
                assert time.monotonic() < until
                time.sleep(0.05)
            assert process.poll() is None
            connection.sendall(image[50:])
            answer = connection.makefile("rb").read().decode()
        assert answer.startswith("HTTP/1.1 200"), answer
        assert answer.endswith('{"stored":1,"version":2}')
        assert process.wait(TIMEOUT) == 0
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.communicate()
    rows = json.loads(command("gallery", "versions", folder, "--json"))
    assert [(row["number"], row["items"]) for row in rows] == [(1, 40), (2, 1)]
    assert not (folder / "served.json").exists()


@pytest.mark.slow
def test_a_killed_server_is_followed_by_another(filled, models, tmp_path):
    folder = Path(shutil.copytree(filled, tmp_path / "g"))
    process, _ = start(folder)
    process.kill()
    process.communicate()
    assert (folder / "served.json").exists()
    assert "version 2 is" in command(
        "gallery", "register", folder, models[1], "--force"
    )  # no server: run in this process
    process, url = start(folder, HOLDFAST_READ_TOKEN="a-token-of-more-than-sixteen")
    try:
        request = urllib.request.Request(
            f"{url}/v1/gallery", headers={"Authorization": "Bearer a-token-of-more-than-sixteen"}
        )
        assert get(request)["newest"] == 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=TIMEOUT)
        assert (process.returncode, "no tokens" in out, err) == (0, False, "")
    finally:
        process.kill()


def test_refusals_at_start(filled, tmp_path, monkeypatch):
    assert "--host 0.0.0.0: without tokens the service is for this" in command("serve", filled, "--host", "0.0.0.0")
    assert "no gallery here" in command("serve", tmp_path)
    monkeypatch.setenv("HOLDFAST_DEVICE", "gpu")
    assert "unknown device 'gpu'; use auto, cpu, cuda" in command("serve", filled)
    monkeypatch.setenv("HOLDFAST_DEVICE", "cpu")
    assert "the token file cannot be read" in command("serve", filled, "--token-file", tmp_path / "nowhere")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "cannot listen at 127.0.0.1" in command("serve", filled, "--port", taken.getsockname()[1])
