"""The verdict on a run: every property judged, in the same words and documents as a check's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from msgspec import structs

from aggverify import model, oracles
from aggverify.audit import engine_gradient, judging
from aggverify.audit.convention import RECORDED
from aggverify.audit.explaining import StepWeights
from aggverify.audit.judging import JudgedFinding
from aggverify.audit.properties import (
    CUT,
    GROUPS_SPAN,
    MASKED,
    ONCE,
    PROPERTIES,
    SILENT,
    TERMS,
    UNEQUAL,
    WEIGHTS,
)
from aggverify.audit.steps import RecordedRun
from aggverify.checks import Check, registered
from aggverify.checks.comparison import worst_weight
from aggverify.codes.state import State
from aggverify.engines import engine
from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.oracles import Policy
from aggverify.oracles.bounds import PRECISIONS, relative, smallest_caught
from aggverify.report.document import document
from aggverify.run.outcome.coverage_observer import warned
from aggverify.run.outcome.extent import Extent
from aggverify.run.outcome.store import stored_case
from aggverify.run.outcome.verdict import ReportedFinding, RunVerdict, counted, summary

_TRIED = ("token_mean", "sample_mean", "prompt_mean", "sequence_sum", "token_sum", "constant")
"""Modes that are looked for where none is named."""


@dataclass(frozen=True, slots=True)
class AuditRequest:
    """What a person declares of the run."""

    target: str
    """The command, or the folder of its records."""
    engine: str
    mode: str | None = None
    divisor: float | None = None
    policy: Policy = oracles.DEFAULT_POLICY
    waivers: tuple[model.Waiver, ...] = ()
    verify_engine: bool = False


def audited(run: RecordedRun, asked: AuditRequest) -> RunVerdict:
    """Every property of the run.

    Raises InputError for a mode that these records cannot distinguish.
    """
    subject, identified = _subject(run, asked)
    steps = judging.weighed(subject, run) if subject.mode else []
    outcomes = [
        _outcome(ONCE, run, judging.once(subject, run, steps)),
        _outcome(MASKED, run, judging.masked(subject, run, steps)),
        _outcome(WEIGHTS, run, judging.weights(subject, run, steps)),
        _outcome(TERMS, run, judging.terms(subject, run, steps)),
    ]
    if asked.verify_engine:
        outcomes.append(engine_gradient.judged(subject, run))
    reports = tuple(
        _reported(subject, found, asked.waivers) for _, every in outcomes for found in every
    )
    extent = Extent()
    extent.add(step.case for step in run.steps)
    return RunVerdict(
        subject.knowing(identified=identified, notes=tuple(_notes(run, subject))),
        reports,
        tuple(_settled(subject, run, steps, done) for done, _ in outcomes),
        len(run.steps),
        ((run.ranks.world, len(run.steps)),),
        (_margin(subject, run, steps),) if steps else (),
        0,
        weaknesses=tuple(_warned(run, subject)),
        tried=extent.tried,
        waivers=tuple(counted(waiver, reports) for waiver in asked.waivers),
    )


def documented(verdict: RunVerdict, folder: Path, *options: str) -> model.Document:
    """Return the verdict document.

    What a finding is seen again with is the audit of the same records, with these options in
    addition to mode and engine.
    """
    with registered(*PROPERTIES):
        made = document([verdict])
    claim = verdict.subject.claim
    mode = () if claim.mode is None else ("--mode", claim.mode)
    again = ("aggverify", "audit", str(folder), *mode, "--engine", claim.engine, *options)
    return structs.replace(
        made,
        verdicts=tuple(
            structs.replace(
                one,
                findings=tuple(structs.replace(f, replay=again) for f in one.findings),
            )
            for one in made.verdicts
        ),
    )


def _subject(run: RecordedRun, asked: AuditRequest) -> tuple[Subject, bool]:
    """Return the run as a subject, and whether its mode was identified.

    Where none is named that is the first one that all steps have; a subject without one if none is.
    """
    claim = Claim(asked.target, "probe", RECORDED.name, asked.engine, policy=asked.policy)
    subject = Subject(claim, RECORDED, engine(asked.engine))
    named = [asked.mode] if asked.mode else [m for m in _TRIED if _why_not(run, m) is None]
    if asked.mode and (why := _why_not(run, asked.mode)) is not None:
        raise InputError(f"{asked.mode} cannot be judged on these records: {why}")
    found = [_under(subject, run, mode, asked) for mode in named]
    right = [s for s in found if _is_right(s, run)]
    if right:
        return right[0], asked.mode is None
    if run.dtype == "float64":
        # Counts and quotients of float32 are no other factor.
        rounded = [s.knowing(computes_in="float32") for s in found]
        right = [s for s in rounded if _is_right(s, run)]
    if right:
        return right[0], not asked.mode
    return (found[0] if asked.mode else subject), False


def _why_not(run: RecordedRun, mode: str) -> str | None:
    """Return what the records lack for it."""
    if mode == "prompt_mean" and not run.shape.groups:
        return "they have no prompt groups: give the probe group_ids="
    whole = mode in ("token_mean", "token_sum")
    if not whole and not run.shape.samples:
        return "they do not say where samples begin: give the probe (samples, tokens), or lengths="
    if not whole and run.ranks.cp_size > 1 and not run.shape.ids:
        return (
            "shards of one sample are not known by ids: give the probe sample_ids= and positions="
        )
    return None


def _under(subject: Subject, run: RecordedRun, mode: str, asked: AuditRequest) -> Subject:
    """Return the subject under a mode; a divisor is read off a weight where no mode is named."""
    divisor = None
    if oracles.mode(mode).needs_divisor:
        found = _divisor(subject, run, mode) if asked.mode is None else None
        divisor = asked.divisor if found is None else found
        if divisor is None or divisor <= 0:
            divisor = 1.0
    return replace(subject, claim=replace(subject.claim, mode=mode, divisor=divisor))


def _divisor(subject: Subject, run: RecordedRun, mode: str) -> float | None:
    """Return what the first weight of the run is divided by in this mode; None for no weight."""
    by_one = Subject(replace(subject.claim, mode=mode, divisor=1.0), RECORDED, subject.engine)
    first = judging.weighed(by_one, run)[0]
    for expected, observed in zip(first.expected, first.observed, strict=True):
        if expected and observed:
            return float((expected / Fraction(float(observed))).limit_denominator(1000))
    return None


def _is_right(subject: Subject, run: RecordedRun) -> bool:
    given = judging.roundings(subject, run), judging.precision(subject, run)
    return all(
        worst_weight(one.judged, one.expected, *given) is None
        for one in judging.weighed(subject, run)
    )


def _outcome(
    check: Check, run: RecordedRun, found: Iterator[JudgedFinding]
) -> tuple[model.CheckRecord, tuple[JudgedFinding, ...]]:
    """Return the first finding of each code: the same on later steps is the same."""
    first: dict[tuple[str, str | None], JudgedFinding] = {}
    for one in found:
        first.setdefault((one.finding.code, one.finding.term), one)
    state = State.FAILED if first else State.OK
    return summary(check, len(run.steps), state), tuple(first.values())


def _settled(
    subject: Subject, run: RecordedRun, steps: Sequence[StepWeights], done: model.CheckRecord
) -> model.CheckRecord:
    """Return a property's record with why it was not judged, or else what it has established."""
    if done.name == TERMS.name and not any(step.terms for step in run.steps):
        return structs.replace(
            done, state=State.LEFT_OUT, cases=0, reason="no further term is probed"
        )
    if done.name == WEIGHTS.name and subject.mode is None:
        reason = "no mode has these weights on every step: name the one that is meant with --mode"
        return structs.replace(done, state=State.NOT_JUDGED, reason=reason)
    if done.name == WEIGHTS.name and done.state is State.OK:
        tokens = sum(s.step.num_unmasked for s in run.steps)
        unknown = sum(int(one.left_out.sum()) for one in steps)
        shown = (
            f"{tokens - unknown:,} of {tokens:,} unmasked tokens"
            if unknown
            else f"{tokens:,} tokens"
        )
        established = f"{shown} of {len(run.steps)} optimizer steps on {run.ranks.world} ranks"
        return structs.replace(
            done, established=f"{established} have the weights of {subject.mode}"
        )
    return done


def _reported(
    subject: Subject, found: JudgedFinding, waivers: Sequence[model.Waiver]
) -> ReportedFinding:
    report = ReportedFinding(
        stored_case(subject, found.finding), found.finding, found.diagnosis, confirmed=True
    )
    accepted = (waiver.reason for waiver in waivers if report.is_covered(waiver))
    return replace(report, waived=next(accepted, None))


def _margin(subject: Subject, run: RecordedRun, steps: Sequence[StepWeights]) -> model.Margin:
    name = judging.precision(subject, run)
    caught = smallest_caught(relative(judging.roundings(subject, run), PRECISIONS[name]))
    worst = judging.worst_margin(subject, run, steps)
    nothing = model.ReportedLoss(float("inf"), float("inf"), 0, 0)
    return model.Margin(name, worst, float(caught), nothing, ())


def _notes(run: RecordedRun, subject: Subject) -> Iterator[str]:
    numbers = ", ".join(str(step.number) for step in run.steps[:12])
    yield f"optimizer steps {numbers}{', …' * (len(run.steps) > 12)}; the first one is 0"
    if not run.shape.ids:
        yield (
            "no sample_ids: whether a sample was lost before the probe, or is on several ranks, "
            "cannot be judged"
        )
    if not run.shape.groups:
        yield "no group_ids: prompt groups cannot be judged"
    if "log_probs" in run.quantities:
        unknown = sum(int((~step.known).sum()) for step in run.steps)
        if unknown:
            yield f"{unknown} tokens have an advantage of 0, or are clipped, and show no weight"


def _listed(rows: Sequence[object]) -> str:
    return ", ".join(map(str, rows[:8])) + ", …" * (len(rows) > 8)


def _warned(run: RecordedRun, subject: Subject) -> Iterator[model.Warned]:
    if run.cut:
        yield warned(CUT, _listed(run.cut))
    if run.silent and run.ranks.pp_size == 1:
        yield warned(SILENT, f"ranks {_listed(run.silent)} of {run.ranks.world}")
    sizes = [len(step.step.samples) for step in run.steps]
    if len(set(sizes)) > 1 and run.shape.samples:
        yield warned(
            UNEQUAL, f"{_listed(sizes)} samples in steps {_listed([s.number for s in run.steps])}"
        )
    if subject.mode == "prompt_mean":
        pairs = zip(run.steps, run.steps[1:], strict=False)
        spans = sorted({g for a, b in pairs for g in a.groups & b.groups})
        if spans:
            yield warned(GROUPS_SPAN, f"{len(spans)} groups, the first with id {spans[0]}")
