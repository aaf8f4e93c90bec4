"""Ranks for a test process: started by the first test that needs them, reducers imported once."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace

from aggverify.checks import Check
from aggverify.errors import AggverifyError, InputError
from aggverify.execution.deadline import NEVER
from aggverify.execution.executor import Executor
from aggverify.execution.limits import LIMITS, RankKind
from aggverify.execution.subject import Subject
from aggverify.run.ahead import draw_ahead
from aggverify.run.opening import OtherPath, opened, other_path, placed, resolved, with_room
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import parse_target
from aggverify.run.search.smoke import taken
from aggverify.world import Pool, Template

MOST_REDUCERS = 2
"""Reducers whose ranks are kept: tests come file by file, and ranks take memory."""

Key = tuple[str, str | None, RankKind, str | None]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A reducer that ranks have imported, with the path that it is compared with."""

    template: Template
    other: OtherPath | None
    executor: Executor
    stack: ExitStack

    def subjects(self, wanted: Request) -> tuple[Subject, ...]:
        """One for each mode of the request; raises AggverifyError."""
        found = resolved(wanted, parse_target(wanted.target), self.template, self.other)
        return taken(with_room(found, self.executor), self.executor)


class SharedRanks:
    """All ranks of one process; ``close`` ends them, and does nothing the second time."""

    def __init__(self) -> None:
        self.deadline = NEVER
        """Of what is run now; while ranks are waited for it raises OutOfTime."""
        self._pool: Pool | None = None
        self._loaded: OrderedDict[Key, Loaded] = OrderedDict()
        self._failed: dict[Key, AggverifyError] = {}

    def turn(self) -> None:
        """Raise OutOfTime at the deadline."""
        self.deadline.check()

    def of(self, wanted: Request, checks: Iterable[Check]) -> Loaded:
        """Return the request's reducer, loaded; too many loaded ones end the least recently used.

        ``checks``: the next to be judged, whose cases are drawn while torch is imported. Raises
        AggverifyError, every time the same for what could not be imported once.
        """
        if wanted.sandbox:
            raise InputError("sandbox is for aggverify check: a test runs in one process with it")
        key = (wanted.target, wanted.against, wanted.ranks, wanted.adapter)
        if key in self._failed:
            raise self._failed[key]
        if key in self._loaded:
            self._loaded.move_to_end(key)
            return self._loaded[key]
        while len(self._loaded) >= MOST_REDUCERS:
            self._loaded.popitem(last=False)[1].stack.close()
        try:
            self._loaded[key] = self._opened(wanted, checks)
        except AggverifyError as error:
            self._failed[key] = error
            raise
        return self._loaded[key]

    def _opened(self, wanted: Request, checks: Iterable[Check]) -> Loaded:
        target, paths = parse_target(wanted.target), [path for path in sys.path if path]
        pool = self._pool = self._pool or Pool(replace(LIMITS, turn=self.turn))
        draw_ahead(wanted, checks, is_enough=lambda: pool.ready)
        wanted = placed(wanted, pool)
        with ExitStack() as stack:
            template = stack.enter_context(
                opened(
                    pool,
                    target.setup(),
                    paths,
                    ranks=wanted.ranks,
                    adapter=wanted.adapter,
                )
            )
            other = stack.enter_context(
                other_path(
                    pool,
                    wanted.against,
                    paths,
                    adapter=wanted.adapter,
                    backend=wanted.ranks.backend,
                )
            )
            other_executor = None if other is None else other.executor
            return Loaded(template, other, Executor(template, other_executor), stack.pop_all())

    def close(self) -> None:
        while self._loaded:
            self._loaded.popitem()[1].stack.close()
        if self._pool is not None:
            self._pool.close()
            self._pool = None
