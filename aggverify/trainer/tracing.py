"""Noting what runs by tracing, before Python 3.12: every line and every instruction is a call."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

from aggverify.steps.case import Case
from aggverify.trainer.conditions import Conditions, Jump

MOST = 20_000
"""Instructions of one case that are looked at: conditions in a long loop are seen by then."""


class Tracing:
    """Lines by their events; conditions by the instruction that comes after each jump."""

    cheap = False

    def __init__(self, file: str, conditions: Conditions) -> None:
        self._file, self._conditions = file, conditions
        self._jumps: dict[CodeType, dict[int, Jump]] = {}
        self._left = 0
        self.lines: set[int] = set()
        self.outcomes: set[int] = set()

    def begin(self, subject: object, case: Case) -> bool:
        if sys.gettrace() is not None:
            return False
        self._left = MOST
        sys.settrace(self._entered)
        return True

    def end(self) -> None:
        if sys.gettrace() == self._entered:
            sys.settrace(None)

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        if code.co_filename != self._file:
            return None
        if code not in self._jumps:
            self._jumps[code] = self._conditions.of(code)
        jumps, before = self._jumps[code], None
        frame.f_trace_opcodes = bool(jumps) and self._left > 0

        def ran(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal before
            if event == "line":
                self.lines.add(frame.f_lineno)
            elif event == "opcode":
                at = frame.f_lasti
                found = None if before is None else before.outcome(at)
                if found is not None:
                    self.outcomes.add(found)
                before = jumps.get(at)
                self._left -= 1
                if self._left <= 0:
                    frame.f_trace_opcodes = False
            return ran

        return ran
