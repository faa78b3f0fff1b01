"""What the page's tests drive: Debian's Chromium by Playwright, and the service on a port of its own."""

import contextlib
import importlib.util
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from holdfast.gallery import Gallery
from holdfast.service.access_control import AccessControl

PATIENCE_S = 20
NEEDED = "HOLDFAST_NEED_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome")
# As root, without a screen, and silent: nothing but the page asks for anything.
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip


def browser_program() -> str:
    """Without a browser the test is skipped or, where the environment says that one is needed, fails."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None or importlib.util.find_spec("playwright") is None:
        reason = f"no {NAMES[0]} or no playwright here: the page is not tested in a browser"
        if os.environ.get(NEEDED):
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    program = browser_program()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        browser.close()


@contextlib.contextmanager
def served(gallery: Gallery, access: AccessControl | None = None, **options: Any) -> Iterator[str]:
    """The address of the gallery's service, which runs in a thread."""
    import uvicorn

    from holdfast.service.app import build_app

    app = build_app(gallery, access=access or AccessControl({}), **options)
    config = uvicorn.Config(app, port=0, lifespan="on", log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert thread.is_alive()
        assert time.monotonic() < until
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)


def until(page: Any, expression: str) -> None:
    """Wait until it holds in the page. (Playwright's own waiting makes code of text there, which the page forbids.)"""
    end = time.monotonic() + PATIENCE_S
    while not page.evaluate(expression):
        assert time.monotonic() < end, expression
        page.wait_for_timeout(30)


# What a browser does with a pasted or dropped file, which no key press can bring about without a clipboard.
GIVE = """([kind, bytes]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([new Uint8Array(bytes)], "query.png", { type: "image/png" }));
  const reported = kind === "paste" ? { clipboardData: carried } : { dataTransfer: carried };
  const event = kind === "paste" ? new ClipboardEvent("paste", { ...reported, bubbles: true, cancelable: true })
    : new DragEvent(kind, { ...reported, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
  return event.defaultPrevented;
}"""


@contextlib.contextmanager
def visits(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages; at the end nothing may have gone wrong or elsewhere, but for what a test expects."""
    contexts: list[Any] = []
    wrong: list[str] = []
    expected: list[str] = []

    def open_page(url: str, *, width: int = 1280, height: int = 800, expect: Sequence[str] = (), **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(1000 * PATIENCE_S)
        contexts.append(context)
        page = context.new_page()
        expected.extend(expect)
        origin = "/".join(url.split("/")[:3])
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request",
            lambda request: None if request.url.startswith((origin, "blob:")) else wrong.append(request.url),
        )
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert [text for text in wrong if not any(one in text for one in expected)] == []
