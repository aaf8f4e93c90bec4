"""Ranks for a test process: started by the first test that needs them, reducers imported once."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggverify.api.running import request
from aggverify.checks import check
from aggverify.errors import InputError
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.limits import LIMITS
from aggverify.execution.subject import Subject
from aggverify.oracles import OracleError
from aggverify.run.outcome import store
from aggverify.run.outcome.accepting import accepted
from aggverify.run.outcome.verdict import Verdict
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, parse_target
from aggverify.run.session import examine, opened, prepared, resolved
from aggverify.testing.cells import Cell, check_options
from aggverify.world import Pool, Template

MOST_REDUCERS = 2
"""Whose ranks are kept: tests come file by file, and ranks take memory."""


@dataclass(slots=True)
class Loaded:
    """A reducer that ranks have imported."""

    target: Target
    template: Template
    laboratory: Laboratory
    stack: ExitStack
    subjects: dict[tuple[str | None, str | None, str], Subject]


class Bench:
    """What the tests of one process share; ``close`` ends every rank.

    ``usual``: options that hold where a test says nothing. ``root``: where paths start.
    """

    def __init__(self, root: Path, report_dir: Path, usual: Mapping[str, Any]) -> None:
        self._root, self._report_dir, self._usual = root, report_dir, usual
        self._pool: Pool | None = None
        self._loaded: OrderedDict[str, Loaded] = OrderedDict()

    def run(self, cell: Cell) -> Verdict:
        """The verdict of the cell's one check; raises AggverifyError where nothing can be judged.

        Counterexamples are stored.
        """
        loaded = self._reducer(cell.target)
        wanted = self._request(loaded, cell)
        try:
            subject = self._subject(loaded, cell, wanted)
            verdict = examine(subject, loaded.laboratory, checks=(check(cell.check),), known=True)
        except OracleError as error:  # a person's own oracle can be wrong on any step
            raise InputError(str(error)) from None
        for found in verdict.reports:
            store.write(found.stored, self._report_dir)
        return accepted(verdict, wanted.waivers)

    def _reducer(self, text: str) -> Loaded:
        """Its ranks, opened if they are not; those that were not used for longest are closed."""
        if text in self._loaded:
            self._loaded.move_to_end(text)
            return self._loaded[text]
        while len(self._loaded) >= MOST_REDUCERS:
            self._loaded.popitem(last=False)[1].stack.close()
        if self._pool is None:
            self._pool = Pool(LIMITS)
        target = parse_target(self._placed(text))
        stack = ExitStack()
        template = stack.enter_context(
            opened(self._pool, target.setup(), [path for path in sys.path if path])
        )
        self._loaded[text] = Loaded(target, template, Laboratory(template), stack, {})
        return self._loaded[text]

    def _placed(self, text: str) -> str:
        """A path below pytest's rootdir, as it is written where pytest was started."""
        head, colon, name = text.partition(".py:")
        path = Path(head + ".py") if colon else Path(text)
        if path.suffix != ".py" or path.is_absolute():
            return text
        here, placed = Path.cwd(), self._root / path
        shown = placed.relative_to(here) if placed.is_relative_to(here) else placed
        return f"{shown}{colon[-1:]}{name}"

    def _request(self, loaded: Loaded, cell: Cell) -> Request:
        """What the test says, and where it says nothing, the suite."""
        mine = {"mode": cell.mode, "engine": cell.engine}
        named = {name: value for name, value in mine.items() if value is not None}
        said = {**self._usual, **cell.options, **named}
        check_options(said)
        return request(loaded.target.text, said)

    def _subject(self, loaded: Loaded, cell: Cell, wanted: Request) -> Subject:
        """With all that is found out before any check, once for every reducer, mode and engine."""
        key = (cell.mode, cell.engine, repr(sorted(cell.options.items())))
        if key not in loaded.subjects:
            subject, *others = resolved(wanted, loaded.target, loaded.template)
            if others:
                known = ", ".join(repr(s.mode) for s in (subject, *others))
                raise InputError(f"{subject.function} has several modes: say modes=[{known}]")
            loaded.laboratory.begin()
            loaded.subjects[key] = prepared(subject, loaded.laboratory)
        return loaded.subjects[key]

    def close(self) -> None:
        """End every rank; does nothing the second time."""
        while self._loaded:
            self._loaded.popitem()[1].stack.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
