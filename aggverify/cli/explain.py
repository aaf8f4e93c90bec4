"""``aggverify explain [CODE]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from aggverify.explain import Entry, Example

LONG = 40
"""Tokens of a mask printed at most."""


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """What a code means, its smallest example, the real bugs, the usual fix.

    Without CODE, every code in one line.
    """
    from aggverify.explain import entries, entry

    if code is None:
        for found in entries().values():
            click.echo(f"{click.style(found.code, bold=True)}  {found.title}")
        click.echo("\naggverify explain CODE tells more")
        return
    for line in _told(entry(code)):
        click.echo(line)


def _told(entry: Entry) -> Iterator[str]:
    yield click.style(f"{entry.code}  {entry.title}", bold=True)
    yield ""
    yield from _indented(entry.meaning)
    if entry.example is not None:
        yield from ("", _heading("Smallest example"))
        yield from _indented("\n".join(_example(entry.example)))
    if entry.bugs:
        yield from ("", _heading("Where it happened"))
        yield from (f"    · {bug}" for bug in entry.bugs)
    yield from ("", _heading("Usual fix"))
    yield from _indented(entry.fix)


def _heading(text: str) -> str:
    return click.style(text, bold=True)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}".rstrip() for line in text.splitlines())


def _example(example: Example) -> Iterator[str]:
    from aggverify.explain import source

    yield from source(example.mutant).splitlines()
    yield ""
    divisor = "" if example.divisor is None else f" (divisor {example.divisor:g})"
    yield f"mode {example.mode}{divisor}, engine {example.engine}, {example.convention} convention"
    step = example.step or f"1/{'1' * example.ones}"
    if len(step) > LONG and example.ones:
        step = f"1/111…1 ({example.ones} tokens)"
    cp = f", cp_size {example.cp} ({example.cp_kind})" if example.cp > 1 else ""
    yield f"step {step}   micro-batches {example.micro_batches}{cp}   {example.dtype}"
    if example.expected is not None:
        yield f"weight of response token {example.token}"
        yield f"  expected  {example.expected}"
        yield f"  actual    {example.actual}"
    yield "(2/101: two prompt tokens, a response masked 101; ; separates prompts,"
    yield " a blank micro-batches, | ranks)"
