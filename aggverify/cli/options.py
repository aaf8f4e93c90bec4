"""Options of the command line: made from the one table, and read in the same way everywhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from aggverify.cli.completion import of_option
from aggverify.errors import InputError
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import BY_KEY, OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])
_TYPES = {OptionType.NUMBER: float, OptionType.INTEGER: int}


def every_option(command: F) -> F:
    """Decorate a click command with every option of the table."""
    return options(*(option.key for option in OPTIONS))(command)


class Grouped(click.Command):
    """A command whose help has the options of the table under headings."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings, what is in no group last."""
        from aggverify.execution.options import GROUPS

        records = {p.name: p.get_help_record(ctx) for p in self.get_params(ctx)}
        headed = {key for keys in GROUPS.values() for key in keys}
        rest = tuple(str(name) for name in records if name not in headed)
        for heading, keys in {**GROUPS, "Other": rest}.items():
            if rows := [record for key in keys if (record := records.get(key)) is not None]:
                with formatter.section(heading):
                    formatter.write_dl(rows)


def options(*keys: str) -> Callable[[F], F]:
    """Decorate a click command with these options of the table."""

    def decorated(command: F) -> F:
        for key in reversed(keys):
            command = _decorated(BY_KEY[key])(command)
        return command

    return decorated


def _decorated(option: Option) -> Callable[[F], F]:
    shows_default = (
        option.kind in (OptionType.TEXT, OptionType.INTEGER) and option.default is not None
    )
    several = option.kind in (OptionType.TEXTS, OptionType.READINGS) and not option.one_text
    return click.option(
        *filter(None, (option.short, option.flag)),
        option.key,
        is_flag=option.kind is OptionType.FLAG,
        multiple=several,
        type=None if option.kind is OptionType.FLAG else _TYPES.get(option.kind, str),
        metavar=option.metavar,
        shell_complete=of_option(option),
        help=option.help + (f"  [default: {option.default}]" if shows_default else ""),
    )


def given_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, of those that click passes.

    Raises InputError for readings that are none.
    """
    values = {k: v for k, v in given.items() if v is not None and v is not False and v != ()}
    for key, what in (("policy", "QUESTION"), ("terms", "TERM")):
        if key in values:
            values[key] = readings(values[key], f"--{key} takes {what}")
    return values


def readings(given: tuple[str, ...], takes: str = "--policy takes QUESTION") -> dict[str, str]:
    """``QUESTION=READING`` options as a mapping; raises InputError on anything else."""
    found = {}
    for text in given:
        question, equals, reading = text.partition("=")
        if not equals:
            raise InputError(f"{takes}=READING, got {text!r}")
        found[question] = reading
    return found
