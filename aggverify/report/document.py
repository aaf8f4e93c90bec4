"""Verdicts as a document: the one place where a run's own objects become what reports read."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from importlib import metadata
from itertools import groupby, islice
from pathlib import Path

from aggverify import __version__
from aggverify.checks import Finding, check
from aggverify.checks.comparison import lowest_precision
from aggverify.checks.spaces import spread
from aggverify.codes import CODES, Effect
from aggverify.codes.state import Incomplete
from aggverify.engines import engine
from aggverify.engines.ratio import ratio
from aggverify.errors import AggverifyError
from aggverify.execution.claim import NONLINEAR
from aggverify.execution.deadline import TooLate
from aggverify.execution.limits import LIMITS
from aggverify.execution.options import default
from aggverify.execution.subject import Subject
from aggverify.files import told
from aggverify.generation.space import sizes
from aggverify.oracles import DEFAULT_POLICY, Sample, mode
from aggverify.oracles.policy import QUESTIONS
from aggverify.report import model
from aggverify.report.plain_torch import script
from aggverify.run.again import Known, Rerun
from aggverify.run.outcome.extent import Extent
from aggverify.run.outcome.store import StoredCase, about, stored_case
from aggverify.run.outcome.verdict import (
    Call,
    CheckSummary,
    Exit,
    ReportedFinding,
    Verdict,
    exit_code,
    why,
)
from aggverify.run.outcome.verdict import Margin as Sharpness
from aggverify.run.planning.engine import possible_engines
from aggverify.steps import kinds
from aggverify.steps.case import Case
from aggverify.steps.kinds import KINDS
from aggverify.steps.layouts import token_owner
from aggverify.world import evidence

USUAL = Path(default("report_dir"))
"""Where ``replay`` looks for cases by itself."""
MAX_WEIGHTS = 100_000
"""Of a step with more tokens no weights are written: its case says it all."""
MAX_RUNS = 1000
"""Of one sample's mask."""
_MASKS: Mapping[tuple[int, int], model.Mask] = {
    (1, 1): "unmasked",
    (0, 0): "masked",
    (0, 1): "rejected",
}
"""By a token's bit in the mask, and in the one before rejection."""


def document(
    verdicts: Sequence[Verdict], where: Path = USUAL, reruns: Iterable[Rerun] = ()
) -> model.Document:
    """All verdicts of one command; ``where``: the directory in which cases are stored; ``reruns``:
    what became of findings of other documents."""
    incomplete = next(filter(None, (verdict.incomplete for verdict in verdicts)), None)
    made = tuple(written(verdict, where) for verdict in verdicts)
    return model.Document(
        model.SCHEMA,
        __version__,
        environment(),
        int(exit_code(verdicts)),
        None,
        incomplete,
        made,
        tuple(map(_replay, reruns)),
        (),
    )


def known_findings(document: model.Document) -> Iterator[Known]:
    """The findings of a document, to be run again; raises InputError for a case that is none."""
    for finding in (finding for verdict in document.verdicts for finding in verdict.findings):
        yield Known(finding.identity, StoredCase.from_json(finding.case))


def with_replays(document: model.Document, reruns: Iterable[Rerun]) -> model.Document:
    """The document with these, instead of what it says of the same cases."""
    every = {replay.id: replay for replay in (*document.replays, *map(_replay, reruns))}
    return replace(document, replays=tuple(every.values()))


def _replay(rerun: Rerun) -> model.Replay:
    known = rerun.known
    seen = rerun.observed if len(rerun.observed or ()) <= MAX_WEIGHTS else None
    return model.Replay(
        known.stored.id, known.identity, rerun.outcome, rerun.code, rerun.words, seen
    )


def environment() -> model.Environment:
    """Of the ranks: they have this process's interpreter, and the torch that is installed."""
    backend = LIMITS.backend
    return model.Environment(
        platform.python_version(), metadata.version("torch"), backend.name, backend.transport
    )


def stopped(
    verdicts: Sequence[Verdict],
    error: BaseException,
    where: Path = USUAL,
    reruns: Iterable[Rerun] = (),
) -> model.Document:
    """The document of a command that came to no end of its own: why, and what is known."""
    code, text = Exit.NO_JUDGEMENT, str(error) or type(error).__name__
    found = document(verdicts, where, reruns)
    if isinstance(error, KeyboardInterrupt):
        known = None if verdicts else "interrupted before anything could be judged"
        return replace(
            found, exit=int(Exit.INTERRUPTED), error=known, incomplete=Incomplete.INTERRUPTED
        )
    if isinstance(error, OSError):
        text = told(error)
    elif not isinstance(error, AggverifyError):
        text = f"internal error in aggverify {__version__}: {type(error).__name__}: {error}"
    incomplete = why(error) if verdicts or isinstance(error, TooLate) else None
    return replace(found, exit=int(code), error=text, incomplete=incomplete)


def written(verdict: Verdict, where: Path = USUAL) -> model.Verdict:
    """One verdict; ``where`` as above."""
    s = verdict.subject
    return model.Verdict(
        claim=s.claim.to_json(),
        about=about(s.claim),
        asked=_asked(s),
        target=s.target,
        function=s.function,
        against=s.against.target if s.against else None,
        convention=s.convention.name,
        convention_title=s.convention.title,
        engine=s.engine.name,
        engine_title=s.engine.title,
        engine_does=s.engine.does,
        engine_is_default=s.engine.name == s.convention.default_engine(s.mode),
        engine_assumed=s.engine_assumed,
        narrowed=s.found.narrowed,
        other_engines=tuple(_other_engines(s)) if s.engine_assumed else (),
        mode=NONLINEAR if s.nonlinear else s.mode,
        oracle=s.oracle.name if s.oracle else None,
        identified=verdict.identified,
        linear=not s.nonlinear,
        divisor=None if s.divisor is None else float(s.divisor),
        computes_in=s.computes_in,
        policy=tuple(_policy(s)),
        claimed=tuple(sorted(s.claimed)),
        without=tuple(sorted(s.without)),
        refused=tuple(
            model.Refusal(r.feature, r.what, r.words, r.feature in s.claimed) for r in s.refused
        ),
        layouts_refused=_layouts(s.knowing(refused=())) - _layouts(s),
        layouts_left=_layouts(s),
        not_claimed=s.not_claimed,
        ranks=model.Ranks(s.found.processor, s.found.threads),
        seed=verdict.seed,
        sandbox=s.found.sandbox,
        notes=s.notes,
        checks=tuple(map(summarised, verdict.checks)),
        executed=verdict.executed,
        worlds={str(w): n for w, n in verdict.worlds},
        tried=_tried(verdict.extent),
        covered=_covered(verdict),
        margins=tuple(map(_margin, verdict.margins)),
        cuts=tuple(model.Cut(c.check, c.drawn, c.planned) for c in verdict.cuts),
        warnings=tuple(
            model.Warned(w.code, CODES[w.code].title, w.detail, CODES[w.code].quiet)
            for w in verdict.weaknesses
        ),
        findings=tuple(
            reported(r, causes[0], s, where) for causes in verdict.causes for r in causes
        ),
        call_milliseconds=verdict.call_milliseconds,
        waivers=tuple(
            model.Waiver(
                w.what,
                w.reason,
                sum(r.is_covered(w) for r in verdict.reports),
                w.identity,
                w.owner,
                w.expires,
                w.expired,
            )
            for w in verdict.waivers
        ),
        incomplete=verdict.incomplete,
    )


def _other_engines(subject: Subject) -> Iterator[model.OtherEngine]:
    """Those whose update differs by a product of sizes that the subject's layouts have."""
    usual = subject.convention.default_engine(subject.mode)
    one = {
        "dp_size": subject.max_world == 1,
        "cp_size": subject.max_world == 1 or "context-parallel" not in subject.features,
    }
    for name in sorted(possible_engines(subject)[1:], key=lambda name: name != usual):
        other = engine(name)
        found = ratio(other, subject.engine) or ()
        factor = tuple(model.Power(p.size, p.power) for p in found if not one.get(p.size))
        if factor:
            yield model.OtherEngine(name, other.does, factor)


def _layouts(subject: Subject) -> int:
    return len(sizes(spread(subject, min_units=1)))


def _policy(subject: Subject) -> Iterator[model.Reading]:
    """The questions that the mode leaves open; all of them where no mode is known."""
    asked = mode(subject.mode).asks if subject.mode and not subject.oracle else ()
    for question, words in QUESTIONS.items():
        reading = getattr(subject.policy, question)
        if question in asked and reading is not None:
            declared = reading != getattr(DEFAULT_POLICY, question)
            yield model.Reading(question, str(reading), declared, words)


def _asked(subject: Subject) -> model.Asked:
    claim, budget = subject.claim, subject.claim.budget
    return model.Asked(
        profile=budget.profile,
        examples=budget.examples,
        max_time=None if budget.max_time is None else float(budget.max_time),
        max_world=claim.max_world,
        seed=claim.seed,
        strict=claim.strict,
        compiled=claim.compiled,
        group_size=claim.group_size,
    )


def summarised(c: CheckSummary) -> model.Check:
    """What one check did."""
    return model.Check(**{f.name: getattr(c, f.name) for f in fields(model.Check)})


def _tried(extent: Extent) -> model.Tried:
    values = {f.name: getattr(extent, f.name) for f in fields(model.Tried)}
    dtypes = {dtype: tuple(sorted(kinds)) for dtype, kinds in sorted(extent.dtypes.items())}
    return model.Tried(**values | {"dtypes": dtypes})


def _covered(verdict: Verdict) -> model.Covered:
    found, seen = verdict.subject.found, verdict.covered
    ran = [not seen.lines.keys().isdisjoint(lines) for _, lines in found.functions]
    parts = zip(found.functions, found.texts or [(0, ())] * len(ran), ran, strict=True)
    functions = tuple(model.Lines(*of, *text) for of, text, any_ran in parts if any_ran)
    lines = {kind: tuple(sorted(seen.on(kind))) for kind in KINDS}
    names = {function.function for function in functions}
    conditions = tuple(
        model.Decided(
            c.function,
            c.line,
            c.text,
            c.then,
            c.otherwise,
            kinds.read(seen.outcomes.get(2 * n + 1, 0)),
            kinds.read(seen.outcomes.get(2 * n, 0)),
        )
        for n, c in enumerate(found.conditions)
        if c.function in names
    )
    return model.Covered(functions, {k: own for k, own in lines.items() if own}, conditions)


def _margin(m: Sharpness) -> model.Margin:
    loss = model.ReportedLoss(m.sparse_caught, m.dense_caught, m.dense_steps, m.vacuous_steps)
    sizes = tuple(model.SizeMargin(tokens, worst) for tokens, worst in m.by_size)
    return model.Margin(m.dtype, m.worst, m.smallest_caught, loss, sizes)


def reported(
    report: ReportedFinding, first: ReportedFinding, subject: Subject, where: Path = USUAL
) -> model.Finding:
    """A confirmed and explained finding; ``first``: the one of the same cause that is shown."""
    f, d, code = report.finding, report.diagnosis, CODES[report.finding.code]
    bugs = (d.bug,) if d and d.bug else ()
    plain = script(subject, f)
    weights = f.expected is None or len(f.expected) <= MAX_WEIGHTS
    return model.Finding(
        id=report.stored.id,
        code=code.code,
        title=code.title,
        severity=code.severity,
        effect="fails" if report.effect is Effect.FAILS else "hazard",
        waived=report.waived.reason if report.waived else None,
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
        roundings=None if subject.nonlinear else subject.roundings,
        matters=report.relevance.matters,
        # What a finding is about is never said not to matter: it only showed with less.
        does_not_matter=tuple(n for n in report.relevance.irrelevant if n != code.field),
        factor=d.factor if d else None,
        off=d.off if d else None,
        diagnosis=d.sentence if d else None,
        bugs=tuple(model.Bug(bug.name, bug.sentence, bug.seen, bug.fix) for bug in bugs),
        call=_call(report.call),
        script=plain.text,
        no_script=plain.why_not,
    )


def _detail(report: ReportedFinding) -> str | None:
    """The fault in words; a call that does not fit the function has no frame of the candidate's,
    and those of ours say nothing."""
    fault = report.finding.fault
    error = fault.error if fault else None
    if fault is None or (error and error.type == "TypeError" and not error.candidate_line):
        return None
    return evidence(fault) or None


def _call(call: Call | None) -> model.Call | None:
    if call is None:
        return None
    return model.Call(tuple(model.Given(*told) for told in call.given), call.returns)


def judged(finding: Finding, subject: Subject) -> model.Finding:
    """A finding that was seen again and not looked into."""
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
    """The case's step and layout."""
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
    """Neighbours with the same bits on the same context-parallel rank."""
    before = sample.original_mask or sample.loss_mask
    ranks = [c for _, c, _ in owners] if owners else bytes(len(before))
    for (bit, counted, rank), run in groupby(zip(sample.loss_mask, before, ranks, strict=True)):
        yield model.Run(_MASKS[bit, counted], rank, sum(1 for _ in run))
