"""One line in a test file: a test for every check, mode and engine. Nothing is run here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pytest

from aggverify.api.running import request
from aggverify.api.targets import Reducer, target_text
from aggverify.checks import installed
from aggverify.codes import Effect, code
from aggverify.errors import InputError, shown, unknown
from aggverify.execution.options import texts

Test = Callable[..., None]
Names = str | Sequence[str]
Entry = tuple[str, str]
"""An expected failure: ``('AGV206:k3f9a1', 'groups are never split here')``."""
Xfail = Sequence[Entry] | str
"""Several entries, or the path of a baseline."""


@dataclass(frozen=True, slots=True)
class ConformanceCell:
    """One test: a check on a reducer under one mode and engine; None: found out, or the default."""

    target: str
    check: str
    mode: str | None = None
    engine: str | None = None
    modes: tuple[str, ...] = ()
    """All modes of the test's line: a reducer that takes its mode must distinguish them."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Of ``aggverify check``, by name."""
    xfail: tuple[Entry, ...] = ()
    """Expected failures of the line: code and case, and the reason."""
    baseline: str | None = None
    """A file of known findings, all of which are expected."""

    @property
    def run_key(self) -> str:
        """What all tests of one run have in common: everything but check and expected failures."""
        return repr(replace(self, check="", xfail=(), baseline=None))

    @property
    def id(self) -> str:
        """What stands between the brackets of a test's name."""
        return "-".join(filter(None, (self.mode, self.engine, self.check)))


_NOT_HERE = ("only", "skip", "exit_first")
"""Options that pytest has by other names."""


def cells(
    reducer: Reducer,
    modes: Names = (),
    engines: Names = (),
    checks: Names = (),
    xfail: Xfail = (),
    **options: Any,
) -> Iterator[ConformanceCell]:
    """Every cell; raises InputError for a name or an option that there is none of."""
    target, names, modes = target_text(reducer), [c.name for c in installed()], texts(modes)
    for name in (chosen := texts(checks)):
        if name not in names:
            raise unknown("check", name, names)
    if "mode" in options:
        raise InputError(f"say modes=[{options['mode']!r:.200}]: each mode has its own tests")
    if (key := next((k for k in _NOT_HERE if options.get(k)), None)) is not None:
        raise InputError(f"{key} is of aggverify check: say checks=[...], or pytest's -k and -x")
    each, file = texts(engines) or (None,), xfail if isinstance(xfail, str) else None
    expected = () if isinstance(xfail, str) else tuple(map(_entry, xfail))
    # The same text in every process, where a set has its own order in each.
    options = {k: sorted(v) if isinstance(v, set | frozenset) else v for k, v in options.items()}
    for engine in each:  # what cannot be requested is an error of collection
        request(target, {**options, "mode": modes or None, "engine": engine})
    for mode, engine in product(modes or (None,), each):
        for name in names:
            if not chosen or name in chosen:
                yield ConformanceCell(target, name, mode, engine, modes, options, expected, file)


def _entry(given: Entry) -> Entry:
    """Return an expected failure, if it is written as one; raises InputError."""
    match given:
        case (str(what), str(reason)) if re.fullmatch(r"\w+:\S+", what) and reason.strip():
            if code(what.partition(":")[0]).effect is Effect.WARNING:
                raise InputError(f"xfail: {what} is a warning, which fails nothing")
            return what, reason.strip()
        case _:
            raise InputError(f"xfail takes ('CODE:CASE', 'reason'), got {shown(given)}")


def conformance(
    reducer: Reducer,
    *,
    modes: Names = (),
    engine: Names = (),
    checks: Names = (),
    xfail: Xfail = (),
    **options: Any,
) -> Test:
    """Return a test function to be assigned to a name that starts with ``test``.

    ``test_mine = aggverify.conformance("my_pkg.loss:reduce", modes=["token_mean"])`` is one test
    for each check, mode and engine: ``test_mine[token_mean-linear_in_the_losses]``. ``reducer`` is
    a target, whose path is relative to pytest's rootdir, or an object with a name in a module;
    ranks import it, not the test process. ``options`` are those of ``aggverify check`` by name.
    ``xfail``: findings that are known, ``('AGV206:k3f9a1', 'why')`` each: their tests run the one
    stored case (``.aggverify/cases``) and fail once it shows nothing, or something else; or the
    path of a baseline (``check --baseline-write``), relative to pytest's rootdir, for all in it.
    Raises InputError, which pytest shows as an error of collection, for what cannot be.
    """

    @_marked(list(cells(reducer, modes, engine, checks, xfail, **options)))
    def conforms(aggverify_check: Any) -> None:
        aggverify_check.must_pass()

    return conforms


def parametrize_with_checks(
    reducers: Sequence[Reducer],
    *,
    modes: Names = (),
    engine: Names = (),
    checks: Names = (),
    xfail: Xfail = (),
    **options: Any,
) -> Callable[[Test], Test]:
    """Decorate a test of a person's own with the argument ``aggverify_check``.

    It is the result of one check on one reducer, with ``must_pass()``, ``state``, ``verdict``.
    """
    found = [c for r in reducers for c in cells(r, modes, engine, checks, xfail, **options)]
    return _marked(found, named=len(reducers) > 1)


def _marked(found: Sequence[ConformanceCell], *, named: bool = False) -> Callable[[Test], Test]:
    """Parametrize; ``--dist loadgroup`` keeps tests of one reducer together: one import of it."""
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
