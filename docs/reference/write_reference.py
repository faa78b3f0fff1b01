"""Write cli.md and api.md, the reference of the command line and of Python (part of ``make docs``).

cli.md is written from the verbs' own help. api.md lists the public names with the first sentence about each; the site
has a page for each group of them (``api_pages``), with signatures and docstrings.
"""

import importlib
import re
from pathlib import Path
from typing import Any

from typer.main import get_command

import holdfast
from holdfast.cli import SECTIONS, app

HERE = Path(__file__).parent
GROUPS = {
    "Bridges, upgrades, checks and metrics": ("upgrades", ("vectors", "metrics", "bridges", "upgrade", "checks")),
    "Galleries": ("galleries", ("embedders", "gallery")),
    "Models and their versions": ("versions", ("train.encoders", "train.versions")),
    "Training": (
        "training",
        (
            "train.engine",
            "train.scenarios",
            "train.methods",
            "train.data",
            "train.experiments",
            "train.evaluation",
        ),
    ),
    "Losses, geometry and errors": ("losses", ("train.losses", "train.geometry", "core")),
}
"""Heading -> its page on the site, and the packages whose public names it lists."""
GUIDES = (
    "holdfast.bridges.pairs.read_pairs",
    "holdfast.bridges.index_side.IndexMap",
    "holdfast.vectors.feature_files.write_features",
    "holdfast.vectors.feature_shards.FeatureShards",
    "holdfast.gallery.gallery_base.BaseGallery",
    "holdfast.gallery.attached.source.Address",
    "holdfast.gallery.attached.stored_sample",
    "holdfast.service.server.serve",
    "holdfast.train.versions.version_defaults.default_settings",
    "holdfast.train.encoders.named_backbone.named_backbone",
    "holdfast.embedders.image_folder.find_files",
    "holdfast.train.methods.interface.TaskView",
    "holdfast.train.methods.interface.Batch",
    "holdfast.train.methods.interface.Progress",
    "holdfast.train.events.EpochEnded",
    "holdfast.train.methods.classifiers.GrowingClassifier",
    "holdfast.train.geometry.sphere.cosine_matrix",
    "holdfast.train.geometry.simplex.embed_in_larger_simplex",
)
"""Names below the packages that the guides use, by the module that defines them."""
METHODS_EXAMPLE = (
    "```pycon", ">>> from holdfast import METHODS", '>>> METHODS["er"].__name__', "'ER'", "```",
)  # fmt: skip
"""A dict has no docstring of its own; the example stands on the page."""


def command_line() -> str:
    """The page of the command line: every verb, in the order of ``holdfast --help``."""
    lines = ["# Command line", "", "Written from the verbs' own `--help`.", ""]
    group = get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    lines += ["Before the verb:", "", "| option | meaning |", "|---|---|"]
    lines += [*(_row(one) for one in group.params if "completion" not in str(one.name)), ""]
    for title, names in SECTIONS.items():
        lines += [f"## {title}", ""]
        for name in names:
            lines += _verb(f"holdfast {name}", commands[name], 3)
    return "\n".join(lines).rstrip() + "\n"


def _verb(words: str, command: Any, level: int) -> list[str]:
    lines = [f"{'#' * level} {words}", "", _text(command.help), ""]
    parts = getattr(command, "commands", {})
    for name, part in parts.items():
        lines += _verb(f"{words} {name}", part, level + 1)
    rows = [_row(one) for one in command.params if not getattr(one, "hidden", False) and one.name != "help"]
    return lines if parts or not rows else [*lines, "| argument or option | meaning |", "|---|---|", *rows, ""]


def _text(text: str | None) -> str:
    """Help with the lines of each paragraph joined."""
    paragraphs = (text or "").replace("\b\n", "").split("\n\n")
    return "\n\n".join(" ".join(part.split()) for part in paragraphs)


def _row(one: Any) -> str:
    name = one.metavar or one.name.upper() if one.param_type_name == "argument" else ", ".join(one.opts)
    known = isinstance(one.default, str | int | float) and one.default not in ("", False)
    shown = getattr(one, "show_default", None)
    default = f" Default: {shown}." if isinstance(shown, str) else f" Default: `{one.default}`." if known else ""
    about = " ".join((one.help or "").split()).replace("|", "\\|")
    return f"| `{name}` | {about}{default} |"


def public_names() -> dict[str, str]:
    """Public name -> package it is imported from."""
    stub = Path(holdfast.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = re.findall(r"^from \.((?:train\.)?\w+)\S* import (\w+) as", stub, re.MULTILINE)
    return {name: package for package, name in imports}


def names_of(packages: tuple[str, ...]) -> dict[str, Any]:
    """Public names of some packages."""
    return {name: getattr(holdfast, name) for name, package in public_names().items() if package in packages}


def python_api() -> str:
    """The page that lists the public names."""
    about = "All names but those of the last section can be imported from `holdfast`."
    lines = ["# Python API", "", f"{about} `help(NAME)` and the site (`make docs`) show parameters and examples.", ""]
    for title, (_, packages) in GROUPS.items():
        lines += [f"## {title}", "", "| name | what it is |", "|---|---|"]
        for name, value in names_of(packages).items():
            about = "All methods by name." if isinstance(value, dict) else _first_sentence(value)
            lines.append(f"| `{name}` | {about} |")
        lines.append("")
        if "METHODS" in names_of(packages):
            lines += [
                "### METHODS",
                "",
                "All methods by name: [methods](../methods/README.md).",
                "",
                *METHODS_EXAMPLE,
                "",
            ]
    lines += ["## Also used in the guides", "", "| import from | name | what it is |", "|---|---|---|"]
    for full in GUIDES:
        module, name = full.rsplit(".", 1)
        value = getattr(importlib.import_module(module), name)
        lines.append(f"| `{module}` | `{name}` | {_first_sentence(value)} |")
    return "\n".join(lines) + "\n"


def _first_sentence(value: Any) -> str:
    text = " ".join((value.__doc__ or "").split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
    return re.split(r"(?<=[.?])\s+(?=[A-Z])", text)[0]


def api_pages() -> dict[str, str]:
    """The site's pages of the Python API: file name -> text, in which the site fills in signatures and docstrings."""
    pages = {}
    for title, (page, packages) in GROUPS.items():
        values = {name: value for name, value in names_of(packages).items() if not isinstance(value, dict)}
        # A name is given by the module that defines it, which may have the same name.
        entries = [f"::: {value.__module__}.{name}" for name, value in values.items()]
        pages[f"{page}.md"] = "\n\n".join([f"# {title}", *entries]) + "\n"
    pages["guides.md"] = "\n\n".join(["# Also used in the guides", *(f"::: {full}" for full in GUIDES)]) + "\n"
    return pages


if __name__ == "__main__":
    (HERE / "cli.md").write_text(command_line(), encoding="utf-8")
    (HERE / "api.md").write_text(python_api(), encoding="utf-8")
