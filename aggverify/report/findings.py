"""A finding, its step and its command as the document has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path

from aggverify import model
from aggverify.checks import Finding, check
from aggverify.checks.comparison import lowest_precision
from aggverify.codes import CODES, Effect
from aggverify.diagnosis.wording import fix
from aggverify.execution.options import default
from aggverify.execution.subject import Subject
from aggverify.oracles import Sample
from aggverify.run.outcome.store import StoredCase, stored_case
from aggverify.run.outcome.verdict import ReportedFinding
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner
from aggverify.world import evidence

USUAL = Path(default("report_dir"))
"""Where ``replay`` looks for cases by itself."""
MAX_RUNS = 1000
"""Runs of one sample's mask that a document lists."""
_MASKS: Mapping[tuple[int, int], model.Mask] = {
    (1, 1): "unmasked",
    (0, 0): "masked",
    (0, 1): "rejected",
}
"""By a token's bit in the mask, and in the one before rejection."""


def reported(
    report: ReportedFinding, first: ReportedFinding, subject: Subject, where: Path = USUAL
) -> model.FindingRecord:
    """Return a confirmed and explained finding.

    ``first``: the one of the same cause that is shown.
    """
    f, d, code = report.finding, report.diagnosis, CODES[report.finding.code]
    bugs = (d.bug,) if d and d.bug else ()
    weights = f.expected is None or len(f.expected) <= model.MAX_WEIGHTS
    return model.FindingRecord(
        id=report.stored.id,
        code=code.code,
        title=code.title,
        severity=code.severity,
        effect="fails" if report.effect is Effect.FAILS else "hazard",
        waived=report.waived,
        signature=report.signature,
        identity=report.identity,
        promise=code.promise or None,
        consequence=code.consequence or None,
        check=f.check,
        confirmed=report.confirmed,
        same_cause_as=None if report is first else first.stored.id,
        message=f.message,
        fault=f.fault.to_json() if f.fault else None,
        detail=_detail(report),
        case=report.stored.to_json(),
        replay=tuple(_command(report.stored, subject, where)),
        step=drawn(f.case),
        reference=f.reference,
        expected=f.expected if weights else None,
        observed=f.observed if weights else None,
        token=f.token,
        error=None if f.error is None else float(f.error),
        bound=None if f.bound is None else float(f.bound),
        precision=lowest_precision(subject, f.case),
        roundings=None if subject.nonlinear else subject.roundings_on(f.case.step),
        matters=report.relevance.matters,
        # What a finding is about is never listed as irrelevant: it only showed with less.
        does_not_matter=tuple(n for n in report.relevance.irrelevant if n != code.field),
        factor=d.factor if d else None,
        off=d.off if d else None,
        diagnosis=d.sentence if d else None,
        suspects=report.suspects,
        bugs=tuple(model.Bug(bug.name, bug.sentence, bug.seen, fix(bug, subject)) for bug in bugs),
        call=report.call,
    )


def _detail(report: ReportedFinding) -> str | None:
    """Return the fault in words.

    None for a TypeError on no line of the candidate: the call did not fit its signature, and our
    own frames explain nothing.
    """
    fault = report.finding.fault
    error = fault.error if fault else None
    if fault is None or (error and error.type == "TypeError" and not error.candidate_line):
        return None
    return evidence(fault) or None


def judged(finding: Finding, subject: Subject) -> model.FindingRecord:
    """Return the record of a finding that a replay has shown, without any diagnosis."""
    report = ReportedFinding(stored_case(subject, finding), finding, None, True)
    return reported(report, report, subject)


def _command(stored: StoredCase, subject: Subject, where: Path) -> Iterator[str]:
    yield from ("aggverify", "replay", stored.id, stored.claim.target)
    if stored.claim.oracle is not None:
        yield from ("--oracle", stored.claim.oracle)
    if stored.claim.adapter is not None:
        yield from ("--adapter", stored.claim.adapter)
    if check(stored.check).compares_paths and subject.against is not None:
        yield from ("--against", subject.against.target)
    if ":" in stored.claim.engine:
        yield from ("--engine", stored.claim.engine)
    if where != USUAL:
        yield from ("--report-dir", str(where))


def drawn(case: Case) -> model.Step:
    """Return the case's step and layout."""
    step, layout = case.step, case.layout
    cell = {i: (d, k) for d, k, members in layout.cells() for i in members}
    owner = token_owner(step, layout) if layout.cp_size > 1 else None
    samples = []
    for i, (sample, start) in enumerate(zip(step.samples, step.offsets, strict=True)):
        owners = owner[start : start + sample.response_length] if owner else None
        d, k = cell[i]
        samples.append(
            model.Sample(
                prompt_length=sample.prompt_length,
                response_length=sample.response_length,
                rollout=sample.rollout,
                prompt_group=sample.group,
                dp_rank=d,
                micro_batch=k,
                runs=tuple(islice(_runs(sample, owners), MAX_RUNS)),
            )
        )
    return model.Step(
        prompts=step.num_groups,
        rollouts=step.num_rollouts,
        dp_size=layout.dp_size,
        cp_size=layout.cp_size,
        cp_kind=layout.cp_kind,
        micro_batches=layout.num_microbatches,
        dtype=case.dtype,
        samples=tuple(samples),
    )


def _runs(sample: Sample, owners: Sequence[tuple[int, int, int]] | None) -> Iterator[model.Run]:
    """Yield neighbouring tokens with the same bits on the same context-parallel rank."""
    before = sample.original_mask or sample.loss_mask
    ranks = [c for _, c, _ in owners] if owners else bytes(len(before))
    for (bit, counted, rank), run in groupby(zip(sample.loss_mask, before, ranks, strict=True)):
        yield model.Run(_MASKS[bit, counted], rank, sum(1 for _ in run))
