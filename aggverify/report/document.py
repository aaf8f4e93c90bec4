"""The verdict document: JSON, schema-versioned, floats in hex, weights as fractions, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from aggverify import __version__
from aggverify.codes import CODES
from aggverify.execution.subject import NONLINEAR
from aggverify.run.outcome.verdict import Exit, ReportedFinding, Verdict, exit_code

SCHEMA = 1
MAX_WEIGHTS = 100_000


def document(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Plain data; two runs with the same plan on the same code give the same document, but for
    ``detail``: tracebacks and stacks."""
    return {
        "schema": SCHEMA,
        "aggverify": __version__,
        "exit": int(exit_code(verdicts)),
        "verdicts": [_verdict(v) for v in verdicts],
    }


def failed(error: str) -> dict[str, Any]:
    """The document of a command that could not judge, and why."""
    head = {"schema": SCHEMA, "aggverify": __version__, "exit": int(Exit.NO_JUDGEMENT)}
    return {**head, "error": error, "verdicts": []}


def render(document: Mapping[str, Any]) -> str:
    """The document as JSON."""
    return json.dumps(document, indent=1) + "\n"


def _verdict(verdict: Verdict) -> dict[str, Any]:
    s = verdict.subject
    return {
        "target": s.target,
        "function": s.function,
        "convention": s.convention.name,
        "engine": s.engine.name,
        "against": s.against.target if s.against else None,
        "mode": NONLINEAR if s.nonlinear else s.mode,
        "oracle": s.oracle.name if s.oracle else None,
        "identified": verdict.identified,
        "divisor": None if s.divisor is None else float(s.divisor).hex(),
        "computes_in": s.computes_in,
        "policy": s.policy.describe(),
        "claimed": sorted(s.claimed),
        "not_claimed": sorted(set(s.convention.not_claimed) - s.claimed),
        "seed": verdict.seed,
        "checks": [
            {
                "name": c.name,
                "tests": c.tests,
                "cases": c.cases,
                "failed": c.failed,
                "skipped": c.skipped,
                "refused": c.refused,
                "established": c.established,
            }
            for c in verdict.checks
        ],
        "executed": verdict.executed,
        "worlds": {str(w): n for w, n in verdict.worlds},
        "margins": [
            {
                "dtype": m.dtype,
                "worst_error_over_bound": m.worst.hex(),
                "smallest_caught": m.smallest_caught.hex(),
                "reported_loss": {
                    "smallest_caught_alone": m.sparse_caught.hex(),
                    "smallest_caught_dense": m.dense_caught.hex(),
                    "dense_steps": m.dense_steps,
                    "vacuous_steps": m.vacuous_steps,
                },
            }
            for m in verdict.margins
        ],
        "warnings": [
            {"code": w.code, "title": CODES[w.code].title, "detail": w.detail}
            for w in verdict.weaknesses
        ],
        "findings": [_finding(r, causes[0]) for causes in verdict.causes for r in causes],
    }


def _finding(report: ReportedFinding, first: ReportedFinding) -> dict[str, Any]:
    f, d = report.finding, report.diagnosis
    return {
        "id": report.stored.id,
        "code": f.code,
        "title": CODES[f.code].title,
        "severity": CODES[f.code].severity,
        "check": f.check,
        "confirmed": report.confirmed,
        "same_cause_as": None if report is first else first.stored.id,
        "message": f.message,
        "detail": f.detail or None,
        "case": report.stored.to_json(),
        "reference": f.reference,
        "expected": _listed(str, f.expected),
        "observed": _listed(float.hex, f.observed),
        "token": f.token,
        "error": _exact(f.error),
        "bound": _exact(f.bound),
        "matters": list(report.relevance.matters),
        "does_not_matter": list(report.relevance.irrelevant),
        "factor": d.factor if d else None,
        "diagnosis": d.sentence if d else None,
        # In full: names are shared by shapes of one bug, and a stored document outlives this list.
        "bugs": [
            {"name": bug.name, "sentence": bug.sentence, "seen": bug.seen, "fix": bug.fix}
            for bug in ((d.bug, *d.also) if d and d.bug else ())
        ],
    }


def _listed(text: Callable[[Any], str], weights: Sequence[Any] | None) -> list[str] | None:
    """One text per token; None for a step too large to be read, whose case says it all."""
    if weights is None or len(weights) > MAX_WEIGHTS:
        return None
    return [text(w) for w in weights]


def _exact(value: Fraction | None) -> str | None:
    return None if value is None else float(value).hex()
