"""Docstrings on the documentation site: parameters, one per line as ``name: text``, as a list; examples as code."""

import re
from typing import Any

import griffe

PARAMETER = re.compile(r"^(\w+(?:, \w+)*): (.*)")


def with_lists(docstring: str) -> str:
    """The docstring with each block of parameters as a Markdown list, and each example as a block of code."""
    return "\n\n".join(_block(block) for block in docstring.split("\n\n"))


def _block(block: str) -> str:
    lines = block.splitlines()
    if block.startswith(">>> "):
        return f"```pycon\n{block.rstrip()}\n```"
    if not lines or not PARAMETER.match(lines[0]):
        return block
    found: list[str] = []
    for line in lines:
        parameter = PARAMETER.match(line)
        if parameter:
            names = ", ".join(f"`{name}`" for name in parameter[1].split(", "))
            found.append(f"- {names}: {parameter[2]}")
        elif line.startswith(" "):
            found.append(f"    {line.strip()}")
        else:  # text after the parameters
            found += ["", line] if found[-1].startswith(("- ", "    ")) else [line]
    return "\n".join(found)


class ParameterLists(griffe.Extension):
    """Changes every docstring that the site shows."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_lists(obj.docstring.value)
