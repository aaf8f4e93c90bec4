"""One line in a test file: a test for every check, mode and engine. Nothing is run here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from aggverify.api.running import request
from aggverify.api.targets import Reducer, target_text
from aggverify.checks import CHECKS
from aggverify.errors import InputError, unknown

Test = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Cell:
    """One test: a check on a reducer under one mode and engine; None: found out, or the default."""

    target: str
    check: str
    mode: str | None = None
    engine: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of ``aggverify check``, by name."""

    @property
    def id(self) -> str:
        """What stands between the brackets of a test's name."""
        return "-".join(filter(None, (self.mode, self.engine, self.check)))


ELSEWHERE = ("against", "compile")
"""Options of ``aggverify check`` that need ranks of another kind than a suite's."""


def check_options(options: Mapping[str, Any]) -> None:
    """Raises InputError for an option that would not be heeded here."""
    for name in ELSEWHERE:
        if options.get(name):
            raise InputError(f"{name} is not taken in a test suite: run aggverify check --{name}")


def cells(
    reducer: Reducer,
    modes: Iterable[str] = (),
    engines: Iterable[str] = (),
    checks: Iterable[str] = (),
    **options: Any,
) -> Iterator[Cell]:
    """Every cell; raises InputError for a name or an option that there is none of."""
    target, names = target_text(reducer), [c.name for c in CHECKS]
    check_options(options)
    for name in (chosen := tuple(checks)):
        if name not in names:
            raise unknown("check", name, names)
    for mode in tuple(modes) or (None,):
        for engine in tuple(engines) or (None,):
            request(target, {**options, "mode": mode, "engine": engine})  # what it refuses, now
            for name in names:
                if not chosen or name in chosen:
                    yield Cell(target, name, mode, engine, options)


def conformance(
    reducer: Reducer,
    *,
    modes: Sequence[str] = (),
    engine: str | Sequence[str] = (),
    checks: Sequence[str] = (),
    **options: Any,
) -> Test:
    """A test function to be assigned to a name that starts with ``test``.

    ``test_mine = aggverify.conformance("my_pkg.loss:reduce", modes=["token_mean"])`` is one test
    for each check, mode and engine: ``test_mine[token_mean-linear_in_the_losses]``. ``reducer`` is
    a target, whose path is relative to pytest's rootdir, or an object with a name in a module;
    ranks import it, not the test process. ``options`` are those of ``aggverify check`` by name.
    Raises InputError, which pytest shows as an error of collection, for what cannot be.
    """
    engines = (engine,) if isinstance(engine, str) else tuple(engine)
    found = list(cells(reducer, modes, engines, checks, **options))

    @_marked(found)
    def conforms(aggverify_check: Any) -> None:
        aggverify_check.must_pass()

    return conforms


def parametrize_with_checks(
    reducers: Sequence[Reducer],
    *,
    modes: Sequence[str] = (),
    engine: str | Sequence[str] = (),
    checks: Sequence[str] = (),
    **options: Any,
) -> Callable[[Test], Test]:
    """Decorator for a test of a person's own with the argument ``aggverify_check``: what came of
    one check on one reducer, with ``must_pass()``, ``state``, ``verdict``."""
    engines = (engine,) if isinstance(engine, str) else tuple(engine)
    found = [c for r in reducers for c in cells(r, modes, engines, checks, **options)]
    return _marked(found, named=len(reducers) > 1)


def _marked(found: Sequence[Cell], *, named: bool = False) -> Callable[[Test], Test]:
    """Tests of one reducer stay together under ``--dist loadgroup``, which so imports it once."""
    parameters = [
        pytest.param(
            cell,
            id=f"{cell.target}-{cell.id}" if named else cell.id,
            marks=pytest.mark.xdist_group(cell.target),
        )
        for cell in found
    ]

    def decorate(test: Test) -> Test:
        made: Test = pytest.mark.parametrize("aggverify_check", parameters, indirect=True)(test)
        return made

    return decorate
