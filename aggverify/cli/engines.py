"""``aggverify engines``."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import click

from aggverify.cli.completion import of_names


@click.command()
@click.argument("names", metavar="[ENGINE]...", nargs=-1, shell_complete=of_names("engine"))
def engines(names: tuple[str, ...]) -> None:
    """How trainers turn losses into updates: formula, who uses it, what the reducer must return.

    Without ENGINE, all of them.
    """
    for line in engines_text(names):
        click.echo(line)


def engines_text(names: Collection[str] = ()) -> Iterator[str]:
    """Engines of these names, or every one, and what to do where none fits."""
    from aggverify.conventions import CONVENTIONS
    from aggverify.engines import ENGINES, RealEngine
    from aggverify.engines import engine as named
    from aggverify.engines.variants import settings_of
    from aggverify.oracles import MODES

    for engine in [named(name) for name in names] or ENGINES.values():
        usual = [
            c.name for c in CONVENTIONS.values() if engine.name in map(c.default_engine, MODES)
        ]
        missing = engine.available()
        yield engine.name
        yield f"    {engine.title}"
        yield f"    your trainer {engine.does}"
        yield f"    trainers: {engine.trainers}"
        yield f"    the reducer returns {engine.required}"
        if isinstance(engine, RealEngine):
            yield f"    its formula: engine {engine.formula.name}, which takes far less time"
            for other in settings_of(engine):
                yield f"    also: --engine {other.name} ({other.variant})"
        if usual:
            yield f"    without --engine: {', '.join(usual)}"
        yield f"    {'available' if missing is None else f'cannot run here: {missing}'}"
        yield ""
    yield "D, C, K, N: dp_size, cp_size, micro-batches and rollouts of the step; w, l: weight and"
    yield "loss of a token; f: what the reducer returns for one micro-batch on one rank."
    yield "Yours: --engine my_module:MY_ENGINE (docs/extending/engine.md)."
