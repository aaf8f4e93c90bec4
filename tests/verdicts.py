"""Small verdicts made by hand, with any text where a candidate can put its own."""

from __future__ import annotations

from fractions import Fraction

from aggverify import model
from aggverify.checks import Finding
from aggverify.codes.state import State
from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.bugs import BUGS
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.report.document import document
from aggverify.run.outcome.branch_coverage import BranchCoverage
from aggverify.run.outcome.coverage_observer import warned
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import Relevance, ReportedFinding, RunVerdict
from aggverify.steps.case import Case
from aggverify.steps.case_tags import ONE_RANK, SHARDED
from aggverify.steps.case_tags import encode as written_kinds
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step
from aggverify.trainer.conditions import Condition
from aggverify.world import Collective, Fault, Frame, Raised

WEIGHTS, CP = "weights_are_the_modes", "independent_of_context_parallel_size"
SPLIT, LINEAR = "split_groups_equal_or_refused", "linear_in_the_losses"

BUG = [bug for bug in BUGS if bug.name == "mean-over-cells"][-1]
"""The last of several that share a name."""


def subject(text: str = "", target: str = "r.py") -> Subject:
    """A token mean of the native convention."""
    return Subject.of(Claim(target + text, f"reduce{text}", "native", "sum", "token_mean"))


def report(
    about: Subject, text: str = "", code: str = "AGV201", number: int = 1, check: str = CP
) -> ReportedFinding:
    """A finding on 2 x ``number`` tokens: half the weight on the first, all of it on the others."""
    step = parse_step(f"1/{'11' * number}")
    case = Case(step, Layout((((0,),),), 2), (1.0,) * (2 * number))
    right = (Fraction(1, 2 * number),) * (2 * number)
    observed = (float(right[0]) / 2, *map(float, right[1:]))
    finding = Finding(
        code, check, f"it says {text}", case, about.mode, right, observed, f"the oracle{text}", 0,
        Fraction(1, 4), Fraction(1, 1 << 50), fault(text),
    )  # fmt: skip
    off = "cp_size times too small"
    told = Diagnosis(f"sum of {text}", "1/cp_size", BUG, f"root {number}", off=off)
    relevance = Relevance(("cp_size",), ("dtype",))
    return ReportedFinding(stored_case(about, finding), finding, told, True, relevance)


def fault(text: str) -> Fault:
    """An exception on rank 0, while rank 1 waits."""
    raised = Raised("ValueError", text, (Frame("r.py", 3, "f", "candidate", text),))
    waits = Collective("all_reduce", "0", (0, 1), "float32", 4, "SUM")
    return Fault("exception", 0, "", 2, {0: raised}, inside={1: waits})


def done(
    name: str,
    tests: str,
    cases: int,
    state: State,
    reason: str | None = None,
    refused: str | None = None,
) -> model.CheckRecord:
    """What a check of this name did."""
    return model.CheckRecord(name, "", tests, cases, state, reason, refused, None, False, 0)


def verdict(
    text: str = "", reports: int = 1, executed: int = 7, code: str = "AGV201"
) -> RunVerdict:
    """One check of every state, and ``reports`` findings."""
    about = subject(text)
    checks = (
        done(WEIGHTS, "T15", executed, State.OK if executed else State.NOT_JUDGED),
        done(CP, "T3", executed, State.FAILED if reports else State.OK),
        done(LINEAR, "", 0, State.LEFT_OUT, f"for a reason {text}"),
        done(SPLIT, "T9", executed, State.OK, refused=f"2 times: {text}"),
    )
    found = tuple(report(about, text, code, number=n + 1) for n in range(reports))
    margin = model.Margin("float64", 0.1, 2e-15, model.ReportedLoss(3e-15, float("inf"), 0, 0), ())
    weak = (warned("AGVW11", f"environment {text}"),)
    source = (f"def reduce(a): {text}", "    if a:", f"        b = a {text}", "    return a")
    about = about.knowing(
        functions=(model.Lines(f"reduce{text}", (4, 5, 6), 3, source),),
        conditions=(Condition(f"reduce{text}", 4, f"a{text}", 5, 6),),
    )
    one, several = written_kinds([ONE_RANK]), written_kinds([ONE_RANK, SHARDED])
    ran = BranchCoverage({4: several, 6: one}, {0: several})
    return RunVerdict(
        *(about, found, checks, executed, ((1, executed),), (margin,), 0, weak), covered=ran
    )


def written(*verdicts: RunVerdict) -> model.Document:
    """Their document."""
    return document(verdicts)
