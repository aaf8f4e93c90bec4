"""Verdicts as a document: the one place where a run's own objects become what reports read."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path

from msgspec.structs import replace

from aggverify import __version__, model
from aggverify.checks.spaces import spread
from aggverify.codes.state import Incomplete
from aggverify.engines import engine
from aggverify.engines.ratio import ratio
from aggverify.errors import AggverifyError
from aggverify.execution.deadline import TooLate
from aggverify.execution.subject import Subject
from aggverify.files import os_error_text
from aggverify.generation.space import sizes
from aggverify.oracles import DEFAULT_POLICY, mode
from aggverify.oracles.policy import QUESTIONS
from aggverify.report.findings import USUAL, reported
from aggverify.run.again import KnownFinding
from aggverify.run.outcome.store import StoredCase, about
from aggverify.run.outcome.verdict import Exit, RunVerdict, exit_code, why
from aggverify.run.planning.engine import possible_engines
from aggverify.steps import case_tags
from aggverify.steps.case_tags import TAGS
from aggverify.world import GLOO, backend


def document(
    verdicts: Sequence[RunVerdict], where: Path = USUAL, reruns: Iterable[model.Replay] = ()
) -> model.Document:
    """All verdicts of one command; ``where``: the directory in which cases are stored.

    ``reruns``: outcomes of the findings of other documents, whose cases were run again.
    """
    incomplete = next(filter(None, (verdict.incomplete for verdict in verdicts)), None)
    made = tuple(written(verdict, where) for verdict in verdicts)
    carried = next((verdict.subject.found.carried for verdict in verdicts), "")
    joined = next((verdict.subject.claim.backend for verdict in verdicts), GLOO.name)
    return model.Document(
        model.SCHEMA,
        __version__,
        environment(carried, joined),
        int(exit_code(verdicts)),
        None,
        incomplete,
        made,
        tuple(reruns),
        (),
    )


def known_findings(document: model.Document) -> Iterator[KnownFinding]:
    """Yield the findings of a document, to be run again.

    Raises InputError for a case that is none.
    """
    for finding in (finding for verdict in document.verdicts for finding in verdict.findings):
        yield KnownFinding(finding.identity, StoredCase.from_json(finding.case))


def with_replays(document: model.Document, reruns: Iterable[model.Replay]) -> model.Document:
    """Return the document with these, instead of what it has of the same cases."""
    every = {replay.id: replay for replay in (*document.replays, *reruns)}
    return replace(document, replays=tuple(every.values()))


def environment(carried: str = "", joined: str = GLOO.name) -> model.Environment:
    """Describe the ranks: they have this process's interpreter and the installed torch.

    ``joined``: the backend's name; ``carried``: what carries collectives apart from it.
    """
    transport = f"{backend(joined).transport} {carried}".rstrip()
    return model.Environment(
        platform.python_version(), metadata.version("torch"), joined, transport
    )


def stopped(
    verdicts: Sequence[RunVerdict],
    error: BaseException,
    where: Path = USUAL,
    reruns: Iterable[model.Replay] = (),
) -> model.Document:
    """Return the document of a command that was ended early: why, and what is known."""
    code, text = Exit.NO_JUDGEMENT, str(error) or type(error).__name__
    found = document(verdicts, where, reruns)
    if isinstance(error, KeyboardInterrupt):
        known = None if verdicts else "interrupted before anything could be judged"
        return replace(
            found, exit=int(Exit.INTERRUPTED), error=known, incomplete=Incomplete.INTERRUPTED
        )
    if isinstance(error, OSError):
        text = os_error_text(error)
    elif not isinstance(error, AggverifyError):
        text = f"internal error in aggverify {__version__}: {type(error).__name__}: {error}"
    incomplete = why(error) if verdicts or isinstance(error, TooLate) else None
    return replace(found, exit=int(code), error=text, incomplete=incomplete)


def written(verdict: RunVerdict, where: Path = USUAL) -> model.Verdict:
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
        mode=s.claim.mode,
        oracle=s.oracle.name if s.oracle else None,
        identified=verdict.identified,
        linear=not s.nonlinear,
        only_called=s.only_called,
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
        never_claimed=tuple(sorted(s.engine.not_claimed)),
        ranks=s.found.ranks,
        seed=verdict.seed,
        sandbox=s.found.sandbox,
        notes=s.notes,
        checks=verdict.checks,
        executed=verdict.executed,
        worlds={str(w): n for w, n in verdict.worlds},
        tried=verdict.tried,
        covered=_covered(verdict),
        margins=verdict.margins,
        cuts=verdict.cuts,
        warnings=verdict.weaknesses,
        findings=tuple(
            reported(r, causes[0], s, where) for causes in verdict.causes for r in causes
        ),
        call_milliseconds=verdict.call_milliseconds,
        waivers=verdict.waivers,
        incomplete=verdict.incomplete,
        assumed=s.found.assumed,
    )


def _other_engines(subject: Subject) -> Iterator[model.OtherEngine]:
    """Those whose update differs by a product of sizes that the subject's layouts have."""
    usual = subject.convention.default_engine(subject.mode)
    always_one = {
        "dp_size": subject.max_world == 1,
        "cp_size": subject.max_world == 1 or "context-parallel" not in subject.features,
    }
    for name in sorted(possible_engines(subject)[1:], key=lambda name: name != usual):
        other = engine(name)
        found = ratio(other, subject.engine) or ()
        factor = tuple(power for power in found if not always_one.get(power.size))
        if factor:
            yield model.OtherEngine(name, other.does, factor)


def _layouts(subject: Subject) -> int:
    return len(sizes(spread(subject, min_units=1)))


def _policy(subject: Subject) -> Iterator[model.Reading]:
    """Yield the questions that the mode leaves open; none where no mode is known."""
    known = subject.objective or (mode(subject.mode) if subject.mode else None)
    asked = known.asks if known is not None and subject.oracle is None else ()
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
        step=budget.step,
        max_world=claim.max_world,
        seed=claim.seed,
        strict=claim.strict,
        compiled=claim.compiled,
        group_size=claim.group_size,
    )


def _covered(verdict: RunVerdict) -> model.Covered:
    found, seen = verdict.subject.found, verdict.covered
    # A condition on what has one value in training goes one way there: neither it nor the line
    # that it leads to otherwise is counted.
    fixed = getattr(verdict.subject.convention, "fixed", ())
    not_reached = {c.then for c in found.conditions if c.text in fixed}
    functions = tuple(
        replace(each, lines=tuple(n for n in each.lines if n not in not_reached))
        for each in found.functions
        if not seen.lines.keys().isdisjoint(each.lines)
    )
    lines = {kind: tuple(sorted(seen.on(kind))) for kind in TAGS}
    names = {function.function for function in functions}
    conditions = tuple(
        model.Decided(
            c.function,
            c.line,
            c.text,
            c.then,
            c.otherwise,
            case_tags.decode(seen.outcomes.get(2 * n + 1, 0)),
            case_tags.decode(seen.outcomes.get(2 * n, 0)),
        )
        for n, c in enumerate(found.conditions)
        if c.function in names and c.text not in fixed
    )
    return model.Covered(functions, {k: own for k, own in lines.items() if own}, conditions)
