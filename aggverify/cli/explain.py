"""``aggverify explain [CODE]``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from aggverify.cli.completion import of_codes

if TYPE_CHECKING:
    from aggverify.codes import Code, Example

WIDTH = 96
LONG = 40
"""Characters of a step from which on a mask of ones is shortened."""


@click.command()
@click.argument("codes", nargs=-1, shell_complete=of_codes)
def explain(codes: tuple[str, ...]) -> None:
    """What a code means, its smallest example, the real bugs, the usual fix.

    Without a code, every code in one line.
    """
    from aggverify import plugins
    from aggverify.codes import CODES, code

    if plugins.declared("checks"):
        from aggverify.checks import installed

        installed()
    if not codes:
        for found in CODES.values():
            click.echo(f"{click.style(found.code, bold=True)}  {found.title}")
        click.echo("\naggverify explain CODE explains one")
        return
    for n, found in enumerate([code(name) for name in codes]):
        if n:
            click.echo("\n")
        for line in _printed(found):
            click.echo(line)


def _printed(code: Code) -> Iterator[str]:
    from aggverify.codes.explanations import explanation

    yield click.style(f"{code.code}  {code.title}", bold=True)
    yield ""
    entry = explanation(code)
    if entry is None:
        yield "    No explanation came with it."
        return
    yield from _paragraph(entry.meaning)
    for example in entry.examples:
        yield from ("", _heading(f"Smallest example: {example.check}"))
        yield from _indented("\n".join(_example(example)))
    if entry.bugs:
        yield from ("", _heading("Where it happened"))
        for bug in entry.bugs:
            first, *rest = textwrap.wrap(bug, WIDTH - 6)
            yield f"    · {first}"
            yield from (f"      {line}" for line in rest)
    yield from ("", _heading("Usual fix"))
    yield from _paragraph(entry.fix)


def _heading(text: str) -> str:
    return click.style(text, bold=True)


def _indented(text: str) -> Iterator[str]:
    return (f"    {line}".rstrip() for line in text.splitlines())


def _paragraph(text: str) -> Iterator[str]:
    return (f"    {line}" for line in textwrap.wrap(" ".join(text.split()), WIDTH - 4))


def _example(example: Example) -> Iterator[str]:
    for reducer in (example.reducer, example.against_reducer):
        yield from reducer.splitlines()
    yield ""
    divisor = "" if example.divisor is None else f" (divisor {example.divisor:g})"
    if not example.mode:  # judged call by call
        yield f"{example.convention} convention"
        return
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
