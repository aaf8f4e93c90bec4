"""What came of one test's check, and what that means for the test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from aggverify import codec, escape
from aggverify.checks import check
from aggverify.codes.state import State
from aggverify.errors import AggverifyError
from aggverify.model import CheckRecord, FindingRecord, Verdict, harmless
from aggverify.report import text, view_model
from aggverify.run.outcome.verdict import summary
from aggverify.run.planning.plan import why_of_another_kind
from aggverify.testing.expected_failures import Expected
from aggverify.testing.parametrization import ConformanceCell
from aggverify.testing.session_state import SessionState


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one check on one reducer, its texts made harmless."""

    verdict: Verdict
    """Of the whole run, with the line and the findings of its check alone; of expected failures,
    the first that is not as expected, or the first."""
    expected: tuple[Expected, ...] = ()
    """What the test expects to fail, and all that was run."""

    @property
    def check(self) -> CheckRecord:
        """The check's line in the verdict."""
        [check] = self.verdict.checks
        return check

    @property
    def state(self) -> str:
        """``ok``, ``failed``, ``hazard``, ``refused``, ``not claimed`` and so on."""
        return str(self.check.state)

    def must_pass(self) -> None:
        """Fail the test that calls it with the finding, or skip it with the reason."""
        if self.expected:
            self._must_fail_as_expected()
        if self.check.state is State.FAILED or self.verdict.fails:
            pytest.fail(self._block(), pytrace=False)
        if self.check.state not in (State.OK, State.HAZARD):
            pytest.skip(view_model.state(self.check))

    def _must_fail_as_expected(self) -> None:
        what = ", ".join(f"{e.what} ({e.reason})" for e in self.expected)
        if is_as_expected(self.verdict):
            pytest.xfail(what)
        if self.verdict.fails:
            pytest.fail(f"expected {what}, found another\n{self._block()}", pytrace=False)
        state = "fixed" if self.check.state is State.OK else view_model.state(self.check)
        pytest.fail(f"expected {what}: {state}; take it out of xfail", pytrace=False)

    def _block(self) -> str:
        codes = ", ".join(dict.fromkeys(f"{f.code} {f.title}" for f in self.verdict.findings))
        return "\n".join((codes, *text.findings(self.verdict)))


_WITH_FINDINGS = (State.FAILED, State.HAZARD, State.WAIVED)


def is_as_expected(verdict: Verdict) -> bool:
    """Whether it has findings, all of them accepted."""
    return bool(verdict.findings) and all(f.waived is not None for f in verdict.findings)


@dataclass(slots=True)
class Leavings:
    """What a test leaves for the summary, as plain data that travels between workers."""

    verdicts: list[Any] = field(default_factory=list)
    """Of whole runs, each with the first test of this process that read it."""
    findings: list[tuple[str, bool]] = field(default_factory=list)
    """The id of each finding of the test's check, and whether it fails."""
    error: str | None = None
    """Why there is none."""


def result(
    state: SessionState,
    cell: ConformanceCell,
    expected: Sequence[Expected],
    left: Leavings,
    test: str,
) -> Result:
    """Return the cell's check, done.

    ``test``: its node id. Fails, as an error of the test, where nothing can be judged.
    """
    function = test.partition("[")[0]
    verdicts: list[Verdict] = []
    try:
        verdicts += [state.again(cell, e.stored, e.reason) for e in expected] or [state.run(cell)]
    except AggverifyError as error:
        left.error = f"{cell.target}: {error}"
    if left.error is not None:
        line = escape.line(left.error.partition("\n")[0])
        if not state.is_reported_by(test, f"{function}: {left.error}"):
            pytest.skip(f"not judged, as another test reports: {line}")
        pytest.fail(line, pytrace=False)
    if expected or state.is_reported_by(test, f"the verdict of {cell.run_key}"):
        left.verdicts += map(codec.plain, verdicts)
    mine = [_of_check(verdict, cell.check) for verdict in verdicts]
    left.findings += [(f.id, f.fails) for verdict in mine for f in verdict.findings]
    other = (verdict for verdict in mine if not is_as_expected(verdict))
    found = Result(harmless(next(other, mine[0])), tuple(expected))
    if found.verdict.fails_at_once and not expected:
        broken = f"{cell.target}: {_briefly(found.verdict.findings[0])}"
        if not state.is_reported_by(test, f"{function}: {broken}"):
            pytest.skip(f"not judged, as another test fails: {broken}")
    elif (why := _not_judged(found)) is not None:
        pytest.fail(f"{cell.target}: {why}", pytrace=False)
    return found


def _of_check(verdict: Verdict, name: str) -> Verdict:
    """Return what the verdict has of one check.

    A failure on the simplest step is of all. What a check finds on branches has the name of another
    one: it is of the check that shows it, and of all checks where none does.
    """
    showing = {record.name for record in verdict.checks if record.state in _WITH_FINDINGS}
    unnamed = showing.difference(finding.check for finding in verdict.findings)

    def tests(finding: FindingRecord) -> set[str]:
        return ({finding.check} if finding.check in showing else unnamed) or {name}

    findings = verdict.findings
    if not verdict.fails_at_once:
        findings = tuple(finding for finding in findings if name in tests(finding))
    checks = tuple(record for record in verdict.checks if record.name == name)
    return replace(verdict, checks=checks or (_of_another_kind(name),), findings=findings)


def _of_another_kind(name: str) -> CheckRecord:
    """Return the record of a check that a run has no line for."""
    known = check(name)
    return summary(known, 0, State.LEFT_OUT, why_of_another_kind(known))


def _not_judged(found: Result) -> str | None:
    """Return what keeps the test from being judged at all."""
    verdict, state = found.verdict, found.check.state
    if state is State.NOT_JUDGED and not found.check.spoiled:
        return view_model.state(found.check)
    if verdict.engine_in_question and state in (State.OK, State.HAZARD):
        return view_model.assumption(verdict)
    return None


def _briefly(finding: FindingRecord) -> str:
    """Return the code, title and first line of a finding."""
    first_line = finding.message.partition("\n")[0]
    return f"{finding.code} {finding.title}: {first_line}"
