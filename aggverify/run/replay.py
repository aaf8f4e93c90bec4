"""Run one stored counterexample again."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aggverify.checks import Finding, check
from aggverify.checks.paths import NAME as PATHS
from aggverify.conventions import convention
from aggverify.engines import engine
from aggverify.errors import InputError
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import NONLINEAR, Subject
from aggverify.generation.space import Space
from aggverify.oracles import Policy
from aggverify.oracles.custom import load as load_oracle
from aggverify.run.outcome.store import StoredCase
from aggverify.run.outcome.tally import Tally
from aggverify.run.planning.claims import terms
from aggverify.run.planning.identify import precision_of
from aggverify.run.planning.target import choose, parse_target
from aggverify.run.search.check_run import CheckRun
from aggverify.run.session import opened, other_path
from aggverify.world import Pool


@dataclass(frozen=True, slots=True)
class Replayed:
    """What came of it: the same finding, another one, or none."""

    stored: StoredCase
    subject: Subject
    finding: Finding | None


def replay(
    stored: StoredCase,
    target_text: str | None,
    oracle: str | None = None,
    against: str | None = None,
) -> Replayed:
    """Judge the stored case on a target (the one it was found on by default).

    ``oracle``: the person's own mode, if the case was found with one; never taken from the case
    file, which is data. ``against``: the other path, likewise.
    """
    if stored.check == PATHS and against is None:
        raise InputError("this case was found by comparing two paths: say --against TARGET")
    if stored.oracle is not None and oracle is None:
        raise InputError(
            f"this case was found with a mode of your own: say --oracle FILE (it was "
            f"{stored.oracle!r:.200})"
        )
    target = parse_target(target_text or stored.target)
    with (
        Pool() as pool,
        opened(pool, target.setup()) as template,
        other_path(pool, against) as other,
    ):
        choice = choose(target, template.description, stored.convention)
        subject = Subject(
            target=target.text,
            function=choice.function,
            terms=terms(choice),
            convention=convention(stored.convention),
            engine=engine(stored.engine),
            mode=None if stored.mode == NONLINEAR else stored.mode,
            nonlinear=stored.mode == NONLINEAR,
            divisor=stored.divisor,
            oracle=None if oracle is None else load_oracle(oracle),
            policy=Policy(**stored.policy),  # type: ignore[arg-type]
            offered=choice.convention.modes(choice.offer),
        )
        laboratory = Laboratory(template, None if other is None else other.laboratory)
        if other is not None:
            subject = other.beside(subject, stored.convention)
        if subject.has_oracle:
            subject = replace(subject, computes_in=precision_of(subject, laboratory))
        check_run = CheckRun(
            check(stored.check), subject, Space(), laboratory, Tally(), lambda: None
        )
        return Replayed(stored, subject, check_run.judge(stored.case))
