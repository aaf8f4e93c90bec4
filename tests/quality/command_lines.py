"""The aggverify commands that a document prints: does the command line take them?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import click

from aggverify.cli import commands
from aggverify.conventions import CONVENTIONS
from aggverify.engines import ENGINES


def commands_of(text: str) -> Iterator[str]:
    """Those among the lines, without what follows them on the line."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in re.finditer(r"\baggverify (?=[a-z])[^#|&;`]*", line):
            yield found[0].strip()


def parse(command: str) -> None:
    """Raises where the command line refuses it, or a name does not exist."""
    _, name, *rest = shlex.split(command.replace("…", ""))
    found: click.Command = commands.commands[name]
    if isinstance(found, click.Group):
        found, rest = found.commands[rest[0]], rest[1:]
    if not rest:
        return  # a command by its name
    given = found.make_context(name, rest).params
    for key, known in (("convention", CONVENTIONS), ("engine", ENGINES)):
        value = given.get(key)
        assert value is None or value in known or ":" in value, f"{command}: no {key} {value}"
