"""Ranks that import for themselves, where those that are forked lack threads of the import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from aggverify.world.faults import Fault, Outcome
from aggverify.world.in_flight import Task


@dataclass(slots=True)
class FallbackImport:
    """Decides whether ranks fail because they lack threads of the import (see ``threads``).

    The first fault of each kind runs again in ranks that import for themselves. If these come to
    the same kind, such faults are believed, and ranks are forked again; if not, all ranks import
    for themselves from then on.
    """

    imports: bool = False
    """Whether ranks import for themselves."""
    settled: bool = True
    """False while what is to be done next is still to be asked of ``next``."""
    _believed: set[str] = field(default_factory=set)
    _doubted: list[tuple[Task, str]] = field(default_factory=list)
    """Tasks with the kinds of their faults: the first one runs again, to decide on its kind."""
    _held: list[Task] = field(default_factory=list)
    """Tasks that wait for that decision."""

    def takes(self, task: Task, outcome: Outcome, *, lacking: bool) -> bool:
        """Whether this is the task's outcome; if not, the task runs again.

        ``lacking``: it comes from ranks that lack threads of the import.
        """
        kind = outcome.kind if isinstance(outcome, Fault) else ""
        if not lacking:
            if self._doubted and task is self._doubted[0][0]:
                self.settled = False
                if kind == self._doubted[0][1]:
                    self._believed.add(kind)
                    self.imports = False
                self._doubted.clear()
            return True
        if not kind or kind in self._believed:
            return True
        self._doubted.append((task, kind))
        self.imports, self.settled = True, False
        return False

    def next(self, waiting: Sequence[Task]) -> list[Task]:
        """Return the tasks to run next: the doubted one by itself, else all that waited."""
        self.settled = True
        if not self._doubted:
            found, self._held = [*self._held, *waiting], []
            return found
        (first, _), *others = self._doubted
        del self._doubted[1:]
        self._held += [*(task for task, _ in others), *waiting]
        first.alone = True
        return [first]
