"""Noting what runs by ``sys.monitoring``, from Python 3.12: what is known already costs nothing."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

from aggverify.steps.case import Case
from aggverify.steps.case_tags import tags
from aggverify.trainer.conditions import Conditions, Jump, outcome

_OURS = (4, 3, 2)
"""Numbers of tools that no debugger and no coverage uses; the first that is free."""


class Monitoring:
    """Lines and jumps of own code objects alone.

    A line is switched off once it has run on every kind of case that there was so far, a jump once
    both its outcomes have; a case of a new kind switches all of them on again, once.
    """

    cheap = True

    def __init__(self, file: str, conditions: Conditions) -> None:
        self._file, self._conditions = file, conditions
        self._monitoring: Any = getattr(sys, "monitoring")  # noqa: B009 (not there in 3.11)
        self._tool: int | None = None
        self._jumps: dict[CodeType, dict[int, Jump]] = {}
        self._subject: object = None
        self._kinds = self._known = 0
        """Tags of the case that runs, and of all cases of the subject so far, a bit for each."""
        self._on = False
        self._seen: dict[tuple[str, int], int] = {}
        """Of a line or an outcome, tags of the cases on which it was seen."""
        self.restarts = 0
        self.lines: set[int] = set()
        self.outcomes: set[int] = set()

    def begin(self, subject: object, case: Case) -> bool:
        if self._tool is None and not self._start():
            return False
        self._kinds = tags(case)
        if subject != self._subject:
            self._subject, self._known = subject, 0
            self._seen.clear()
        if self._kinds & ~self._known:
            self._known |= self._kinds
            self.restarts += 1
            self._monitoring.restart_events()
        self._on = True
        return True

    def end(self) -> None:
        self._on = False

    def _start(self) -> bool:
        """Take a number and watch for own functions; whether one was free."""
        known, events = self._monitoring, self._monitoring.events
        self._tool = next((n for n in _OURS if known.get_tool(n) is None), None)
        if self._tool is None:
            return False
        known.use_tool_id(self._tool, "aggverify")
        known.register_callback(self._tool, events.PY_START, self._entered)
        known.register_callback(self._tool, events.LINE, self._ran)
        for event in self._branches():
            known.register_callback(self._tool, event, self._went)
        known.set_events(self._tool, events.PY_START)
        return True

    def _branches(self) -> list[int]:
        events = self._monitoring.events
        if hasattr(events, "BRANCH_LEFT"):
            return [events.BRANCH_LEFT, events.BRANCH_RIGHT]
        return [events.BRANCH]

    def _entered(self, code: CodeType, offset: int) -> Any:
        if code.co_filename == self._file and code not in self._jumps:
            self._jumps[code] = self._conditions.of(code)
            wanted = self._monitoring.events.LINE
            for event in self._branches():
                wanted |= event
            self._monitoring.set_local_events(self._tool, code, wanted)
        return self._monitoring.DISABLE

    def _ran(self, code: CodeType, line: int) -> Any:
        if not self._on:
            return None
        self.lines.add(line)
        return self._monitoring.DISABLE if self._seen_on_all(("line", line)) else None

    def _went(self, code: CodeType, offset: int, target: int) -> Any:
        jump = self._jumps[code].get(offset)
        if jump is None:
            return self._monitoring.DISABLE
        if not self._on:
            return None
        found = jump.outcome(target)
        if found is None:
            return None
        self.outcomes.add(found)
        other = ("outcome", outcome(jump.index, not found % 2))
        both = self._seen_on_all(("outcome", found)) and self._seen.get(other) == self._known
        return self._monitoring.DISABLE if both else None

    def _seen_on_all(self, what: tuple[str, int]) -> bool:
        """Note that it is seen; whether it was on cases with every tag there has been."""
        seen = self._seen[what] = self._seen.get(what, 0) | self._kinds
        return seen == self._known
