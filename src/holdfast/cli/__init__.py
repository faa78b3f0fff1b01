"""The command line: one module per verb. Heavy imports happen inside the verbs, so that help stays fast."""

import errno
import sys
from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from holdfast.cli import (
    bridge,
    check,
    check_history,
    check_mixed,
    compare,
    demo,
    doctor,
    embed,
    evaluate,
    export,
    gallery_maintenance,
    ls,
    pretrain,
    run,
    serve,
    show,
    slots,
    start,
    update,
)

SECTIONS = {
    "Start here": ("demo", "doctor"),
    "Your index": ("compare", "bridge", "check", "check-mixed", "check-history", "gallery", "embed", "serve"),
    "Your model": ("start", "update", "export", "slots"),
    "Experiments": ("run", "pretrain", "evaluate", "ls"),
}
"""The verbs as ``holdfast --help`` shows them."""


QUIET = ("-q", "--quiet")


def _verbs_with(group: Any, option: str, before: str = "") -> Iterator[str]:
    """Verbs that have an option, with the group that they belong to."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _verbs_with(command, option, f"{name} ")
        elif any(option in parameter.opts for parameter in command.params):
            yield before + name


class VerbsInSections(TyperGroup):
    """Shows the verbs of ``SECTIONS``, section by section; -q may stand after them; an option is looked for in all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        quiet = [word for word in args[:end] if word in QUIET]
        return super().parse_args(ctx, [*quiet[:1], *(word for word in args[:end] if word not in QUIET), *args[end:]])

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:  # typer has a click of its own or imports it, so its classes have no public name
            unknown = getattr(error, "option_name", "") if hasattr(error, "possibilities") else ""
            if unknown and (verbs := sorted(_verbs_with(self, unknown))):
                error.message += f"; it is an option of {', '.join(verbs)}"  # type: ignore[attr-defined]
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(len(name) for names in SECTIONS.values() for name in names)
        for title, names in SECTIONS.items():
            rows = [(name.ljust(width), self.commands[name].get_short_help_str(limit=200)) for name in names]
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="holdfast",
    cls=VerbsInSections,
    help="Keep a vector index useful while the embedding model behind it changes.",
    epilog="Start with: holdfast demo, or with two files of vectors: holdfast bridge --help",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: paragraphs are wrapped to the screen, and brackets stay
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("start")(start.start)
app.command("update")(update.update)
app.command("run")(run.run)
app.command("pretrain")(pretrain.pretrain)
app.command("evaluate")(evaluate.evaluate)
app.command("embed")(embed.embed)
app.command("bridge")(bridge.bridge)
app.command("check")(check.check)
app.command("check-mixed")(check_mixed.check_mixed)
app.command("check-history")(check_history.check_history)
app.command("compare")(compare.compare)
app.add_typer(slots.app, name="slots")
app.command("ls")(ls.ls)
app.command("export")(export.export)
app.command("doctor")(doctor.doctor)
app.add_typer(gallery_maintenance.gallery, name="gallery")
app.command("serve")(serve.serve)


def _print_version(requested: bool) -> None:
    if requested:
        from holdfast.core.environment import DISTRIBUTION, version

        typer.echo(f"holdfast {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
    ),
    quiet: bool = typer.Option(False, *QUIET, help="No progress on stderr; may also stand after the verb."),
    code: list[str] = typer.Option(
        [],
        metavar="PACKAGE.MODULE:FUNCTION",
        help="Your own network's code, which model folders may then name; may be given several times.",
        show_default=False,
    ),
) -> None:
    show.quiet = quiet
    if code:
        from holdfast.train.named_code import trust_code

        trust_code(code)


def _remedy(error: Exception) -> str:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "; free some space and run the same command again" if full else ""


def main() -> None:
    """Run a verb. An error that the user can correct gives one line on stderr and exit status 1."""
    from holdfast.cli.show import outlive_readers, replace_unknown_characters
    from holdfast.core.errors import HoldfastError, missing_extra

    outlive_readers()
    replace_unknown_characters()
    try:
        app()
    except (HoldfastError, OSError) as error:  # OSError: a full disk, a folder that may not be written
        sys.stderr.write(f"holdfast: {error}{_remedy(error)}\n")
        sys.exit(1)
    except ModuleNotFoundError as error:
        if (needed := missing_extra(error)) is None:
            raise
        sys.stderr.write(f"holdfast: this command {needed}\n")
        sys.exit(1)
