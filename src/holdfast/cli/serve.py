"""``holdfast serve``: a gallery over HTTP."""

from pathlib import Path

import typer

from holdfast.cli.show import say


def serve(
    folder: Path = typer.Argument(..., metavar="GALLERY", help="The gallery's folder.", show_default=False),
    host: str = typer.Option("127.0.0.1", "--host", help="Address to listen at; any but this machine's needs tokens."),
    port: int = typer.Option(8321, "--port", min=0, max=65535, help="Port to listen at; 0: any free port."),
    token_file: Path | None = typer.Option(
        None, "--token-file", help="File with lines 'read TOKEN' or 'write TOKEN'; see docs/service.md."
    ),
    allow_host: list[str] = typer.Option(
        [],
        "--allow-host",
        metavar="NAME",
        help="Without tokens: a further host name that requests may be sent to; can be repeated.",
    ),
    max_body: int = typer.Option(16, "--max-body", min=1, help="Largest request, in MiB."),
) -> None:
    """Serve a gallery (index) over HTTP, with a page to search it.

    Search, add, delete, versions, metrics. Tokens come from --token-file and from HOLDFAST_READ_TOKEN and
    HOLDFAST_WRITE_TOKEN. Stop with Ctrl-C: requests that have begun are answered first.

    Example: holdfast serve shop --port 8321
    """
    from holdfast.gallery import OpenGallery
    from holdfast.service.access_control import AccessControl, read_tokens
    from holdfast.service.body_limits import Limits
    from holdfast.service.server import serve as run_server

    tokens = read_tokens(token_file)
    limits = Limits(
        body=max_body << 20,
        bodies=max(Limits.bodies, 4 * max_body << 20),
        pixels=max(Limits.pixels, 2 * max_body << 20),
    )

    def announce(url: str, gallery: OpenGallery) -> None:
        reading = ", read-only" if gallery.read_only else ""
        typer.echo(f"{folder}: serving version {gallery.newest().number} at {url}{reading}")
        if not tokens:
            allowed = "read" if reading else "read and write"
            say(f"no tokens: every program on this machine can {allowed}; other machines cannot connect")

    run_server(
        folder,
        host=host,
        port=port,
        access=AccessControl(tokens, allow_host),
        limits=limits,
        on_started=announce,
    )
