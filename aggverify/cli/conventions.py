"""``aggverify conventions``."""

from __future__ import annotations

from collections.abc import Iterator

import click


@click.command()
def conventions() -> None:
    """How functions are called: signature, modes, engine, and what each has been run against."""
    for line in conventions_text():
        click.echo(line)


def conventions_text() -> Iterator[str]:
    """Every convention of the table, and what to do where none fits."""
    from aggverify.conventions import ALIASES, CONVENTIONS
    from aggverify.conventions.adapter_convention import AdapterConvention
    from aggverify.conventions.calls import PerCallConvention
    from aggverify.conventions.run_against import run_against
    from aggverify.oracles import LEGACY, MODES

    for how in CONVENTIONS.values():
        alias = [f" (alias {alias})" for alias, name in ALIASES.items() if name == how.name]
        engine = {mode: how.default_engine(mode) for mode in (*MODES, LEGACY.name)}
        modes = [m for m in MODES if how.why_not(m, engine[m], frozenset()) is None]
        promised = frozenset({"whole-groups"})
        asked = {
            "with --group-size G": [
                m for m in MODES if m not in modes and not how.why_not(m, engine[m], promised)
            ],
            "with --micro-batch-size B": [
                m for m in (LEGACY.name,) if not how.why_not(m, engine[m], frozenset())
            ],
        }
        ran = ", ".join(one.text for one in run_against(how))
        yield how.name + "".join(alias)
        yield f"    {how.title}"
        yield f"    {how.signature}"
        if modes:
            yield f"    modes: {', '.join(modes)}"
        yield from (f"    {option}: {', '.join(more)}" for option, more in asked.items() if more)
        if modes:
            yield f"    without --engine: {', '.join(dict.fromkeys(engine[m] for m in modes))}"
        none = (
            "no version yet"
            if isinstance(how, AdapterConvention)
            else "nothing: it calls your function"
        )
        yield f"    run against: {ran or none}"
        known = "by its signature, or " if not isinstance(how, PerCallConvention) else ""
        yield f"    taken {known}with --convention {how.name}"
        yield ""
    yield "Yours: --adapter my_adapter.py (docs/extending/convention.md)."
