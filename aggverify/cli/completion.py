"""What a shell completes: names of the shipped schema, codes, and files. Imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import click
from click.shell_completion import CompletionItem

from aggverify.cli.early import accepted, properties
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import Option

Completes = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def of_files(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Hand a path back as it is: the shell completes files itself."""
    return [CompletionItem(begun, type="file")]


def of_option(option: Option) -> Completes | None:
    """Return the values of an option, None where they cannot be listed."""
    if option.is_path:
        return of_files
    if option.kind is OptionType.READINGS:
        return lambda _context, _parameter, begun: _items(_readings(option.key), begun)
    if not option.names:
        return None

    def complete(
        context: click.Context, parameter: click.Parameter, begun: str
    ) -> list[CompletionItem]:
        # Of json,html only the last one is still to be completed.
        before = begun.rpartition(",")[0] + "," if option.one_text and "," in begun else ""
        return _items((before + name for name in names(option.key)), begun)

    return complete


def of_names(key: str) -> Completes:
    """Return the names that an option takes, as the arguments of the command that lists them."""
    return lambda _context, _parameter, begun: _items(names(key), begun)


def of_codes(
    context: click.Context, parameter: click.Parameter, begun: str
) -> list[CompletionItem]:
    """Codes, each with its title."""
    from aggverify.codes import CODES

    return [
        CompletionItem(c.code, help=c.title) for c in CODES.values() if c.code.startswith(begun)
    ]


def names(key: str) -> Sequence[str]:
    """Return the names that a setting's schema lists, without those that a shell splits."""
    schema = properties()[key]
    found, _ = accepted(schema)
    for other in schema.get("anyOf", ()):
        found += accepted(other.get("items", {}))[0]
    return [name for name in dict.fromkeys(found) if re.fullmatch(r"[\w.-]+", name)]


def _readings(key: str) -> Iterator[str]:
    for question, schema in properties()[key].get("properties", {}).items():
        yield from (f"{question}={reading}" for reading in accepted(schema)[0])


def _items(found: Sequence[str] | Iterator[str], begun: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in found if name.startswith(begun)]
