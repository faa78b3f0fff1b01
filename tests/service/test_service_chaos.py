"""A served gallery under every kind of request at once, killed again and again.

Clients keep a record of their own of what was acknowledged. After every kill they compare it with the gallery: nothing
acknowledged is lost, nothing refused is done. HOLDFAST_CHAOS_SECONDS sets how long it goes on, one minute by default:

    HOLDFAST_CHAOS_SECONDS=1200 pytest -s tests/service/test_service_chaos.py
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from holdfast.gallery import Gallery

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from acknowledged import EACH, Maintainer, Servers, Writer, check_all

SECONDS = float(os.environ.get("HOLDFAST_CHAOS_SECONDS", "60"))
WRITERS, PATHS = 3, 40
TIMEOUT = 0.1  # of a request at the service, so that some are answered by 503 and 504

# Imports once; every line on stdin starts a server, which is a fork and ready within a moment.
NURSERY = f"""
import os, signal, sys
from pathlib import Path
import torch, uvicorn
import holdfast.gallery.engines.postgres_engine
import holdfast.service.app, holdfast.service.connections
from holdfast.service.access_control import AccessControl
from holdfast.service.body_limits import Limits
from holdfast.service.server import serve
folder = Path(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        started = lambda url, gallery: print(os.getpid(), url, flush=True)
        try:
            serve(folder, host="127.0.0.1", port=0, access=AccessControl({{}}), limits=Limits(seconds={TIMEOUT}),
                  device="cpu", on_started=started)
        except BaseException as error:
            print("failed", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    print("ended", os.waitpid(child, 0)[1], flush=True)
"""


class ForkedServers(Servers):
    """Servers that are forks of one process."""

    def __init__(self, folder: Path, log: Path) -> None:
        super().__init__(folder)
        self._log = log.open("wb")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._nursery = subprocess.Popen(
            [sys.executable, "-c", NURSERY, str(folder)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment,
        )  # fmt: skip

    def launch(self) -> tuple[int, str]:
        self._nursery.stdin.write("start\n")
        self._nursery.stdin.flush()
        process, url = self._nursery.stdout.readline().split(maxsplit=1)
        assert process.isdecimal(), url
        return int(process), url

    def ended(self) -> int:
        word, status = self._nursery.stdout.readline().split()
        assert word == "ended"
        return int(status)

    def close(self) -> None:
        self._nursery.stdin.close()
        self._nursery.stdout.close()
        self._nursery.kill()
        self._nursery.wait()
        self._log.close()


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_acknowledged_is_lost_and_nothing_refused_is_done(filled, models, tmp_path):
    folder = Path(shutil.copytree(filled, tmp_path / "g"))
    with Gallery.open(folder, device="cpu") as gallery:
        from holdfast.gallery import Item

        gallery.delete([f"{'ab'[n % 2]}/{n}" for n in range(PATHS)])
        for n in range(PATHS):
            shutil.copy(filled.parent / f"{n}.png", tmp_path)
        gallery.add(Item(f"p/{n}", path=tmp_path / f"{n}.png", metadata={"n": 0}) for n in range(PATHS))
    stop, counts, errors, draw = threading.Event(), Counter(), [], random.Random(0)
    servers = ForkedServers(folder, tmp_path / "log")
    writers = [Writer(f"w{n}", servers, stop, counts) for n in range(WRITERS)]
    images = {f"p/{n}": tmp_path / f"{n}.png" for n in range(PATHS)}
    maintainer = Maintainer(servers, stop, counts, models, images)

    def guarded(run):
        try:
            run()
        except BaseException as error:
            errors.append(error)
            stop.set()

    threads = [threading.Thread(target=guarded, args=(one.run,)) for one in (*writers, maintainer)]
    until = time.monotonic() + SECONDS
    try:
        servers.start()
        for thread in threads:
            thread.start()
        while time.monotonic() < until and not stop.is_set():
            wait_for_work(counts, draw.randint(1, 200), stop)
            stop.wait(draw.uniform(0, 0.2))
            graceful = draw.random() < 0.1
            status = servers.end(signal.SIGTERM if graceful else signal.SIGKILL)
            assert status == (0 if graceful else signal.SIGKILL), (status, (tmp_path / "log").read_text())
            servers.start()
        stop.set()
        for thread in threads:
            thread.join(60)
        assert not errors, errors
        assert servers.end(signal.SIGTERM) == 0
    finally:
        stop.set()
        servers.close()
    print(f"{servers.kills} kills in {SECONDS:g} s; {dict(sorted(counts.items()))}")  # noqa: T201
    with Gallery.open(folder, device="cpu") as gallery:
        check_all(gallery, writers, maintainer)
    assert servers.kills > 0
    assert counts["done add"] > 0
    assert counts["checks"] > WRITERS * EACH
    assert "Traceback" not in (tmp_path / "log").read_text()


def wait_for_work(counts: Counter, more: int, stop: threading.Event) -> None:
    """Return after so many further checks and writes, by all clients together, or after five seconds."""
    before, until = counts.total(), time.monotonic() + 5
    while counts.total() < before + more and time.monotonic() < until and not stop.wait(0.01):
        pass
