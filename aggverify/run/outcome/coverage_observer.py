"""What a run could not have seen, by the cases that were executed rather than by the plan."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from aggverify import oracles
from aggverify.checks import Finding
from aggverify.codes import CODES
from aggverify.execution.subject import Subject
from aggverify.model import Cut, Warned
from aggverify.run.outcome.branch_coverage import BranchCoverage
from aggverify.run.outcome.extent import Extent
from aggverify.steps.case import Case
from aggverify.world import NCCL, backend

RIVALS = ("token_mean", "sample_mean", "prompt_mean")
"""Modes that have the same weights on steps that are not varied enough."""


def warned(code: str, detail: str) -> Warned:
    """Return a warning code and what it is about, in this run."""
    return Warned(code, CODES[code].title, detail, CODES[code].quiet)


@dataclass(slots=True)
class CoverageObserver:
    """Which distinguishing kinds of cases were executed."""

    cases: int = 0
    ragged: bool = False
    split_group: bool = False
    fully_masked: bool = False
    parallel: bool = False
    largest_world: int = 0
    distinguished: set[str] = field(default_factory=set)
    """Modes that had other weights than the declared one on some executed step."""
    cut_short: list[Cut] = field(default_factory=list)
    over_bound: float = 0.0
    """Largest error over its bound of those that the rounding of running sums explains."""
    altered: set[str] = field(default_factory=set)
    """Global state that the candidate left changed."""
    extent: Extent = field(default_factory=Extent)
    covered: BranchCoverage = field(default_factory=BranchCoverage)
    flaky: set[str] = field(default_factory=set)
    """Places that raised in some runs of a step and not in others."""
    doubted: list[Finding] = field(default_factory=list)
    """What only virtual ranks have shown."""
    outlived: tuple[str, ...] = ()
    """Signals by which ranks were ended from outside; their steps were run again."""

    def add(self, subject: Subject, cases: Iterable[Case]) -> None:
        """Note executed cases."""
        cases = list(cases)
        self.extent.add(cases)
        for case in cases:
            self.cases += 1
            layout, step = case.layout, case.step
            self.largest_world = max(self.largest_world, layout.world_size)
            self.parallel |= not layout.is_trivial
            self.fully_masked = self.fully_masked or any(not any(s.loss_mask) for s in step.samples)
            self.ragged = self.ragged or _is_ragged(case)
            self.split_group = self.split_group or _splits_a_group(case)
            for rival in RIVALS:
                if rival not in self.distinguished and _differs(subject, case, rival):
                    self.distinguished.add(rival)

    def weaknesses(self, subject: Subject) -> tuple[Warned, ...]:
        """Every warning this run deserves; none if nothing was run at all."""
        return tuple(self._warnings(subject)) if self.cases and not subject.only_called else ()

    def _warnings(self, subject: Subject) -> Iterator[Warned]:
        judged = subject.mode is not None or subject.oracle is not None
        if not self.ragged:
            yield warned("AGVW01", "all rollouts of every step had equally many unmasked tokens")
        if not self.split_group:
            yield warned("AGVW02", "every group lay whole in one micro-batch of one rank")
        if not self.fully_masked:
            yield warned("AGVW03", "every sample had an unmasked token")
        carried = subject.found.carried
        between = f", {carried}" if carried else ""
        joined = backend(subject.claim.backend)
        if joined != NCCL:
            where = "from CUDA tensors, staged," if joined.is_far else "on processors"
            yield warned("AGVW04", f"gloo {where} carried every collective{between}")
        elif self.largest_world == 1:
            yield warned("AGVW04", "NCCL joined one rank: nothing went from one to another")
        cores = len(os.sched_getaffinity(0))
        if self.largest_world > cores and not carried:
            yield warned("AGVW05", f"up to {self.largest_world} ranks shared {cores} cores")
        if subject.not_claimed:
            yield warned("AGVW06", ", ".join(subject.not_claimed))
        same = [m for m in RIVALS if judged and m != subject.mode and m not in self.distinguished]
        if same:
            yield warned("AGVW07", f"the same weights as {', '.join(same)} on every step")
        if self.cut_short:
            cuts = (f"{c.drawn} of {c.planned} drawn in {c.check}" for c in self.cut_short)
            yield warned("AGVW08", ", ".join(cuts))
        if not self.parallel:
            yield warned("AGVW09", "one rank and one micro-batch throughout")
        if not judged and not subject.nonlinear:
            only = "only the same result in every layout was judged"
            yield warned("AGVW10", f"{only}; --mode compares it with a formula")
        if self.over_bound:
            yield warned("AGV302", f"needs {self.over_bound:.3g} times the bound")
        found = subject.found
        fixed = getattr(subject.convention, "fixed", ())
        for code, detail in self.covered.weaknesses(found.functions, found.conditions, fixed):
            yield warned(code, detail)
        for finding in self.doubted:
            yield warned("AGVW20", f"{finding.case.layout.world_size} ranks: {finding.message}")
        if subject.found.no_room:
            left_out = f"those of more than {subject.max_world} were left out"
            yield warned("AGVW19", f"{left_out}; {subject.found.no_room}")
        if self.altered:
            names = ", ".join(sorted(self.altered))
            yield warned("AGVW11", f"{names}; put right after every step, or the ranks replaced")
        if self.outlived:
            by = ", ".join(sorted(set(self.outlived)))
            times = len(self.outlived)
            yield warned("AGVW12", f"by {by}, {times} step{'s' * (times > 1)} run again")


def _is_ragged(case: Case) -> bool:
    samples = case.step.samples
    counts = {sum(sum(samples[i].loss_mask) for i in r) for r in case.step.rollouts.values()}
    return len(counts) > 1


def _splits_a_group(case: Case) -> bool:
    cell = {i: (d, k) for d, k, members in case.layout.cells() for i in members}
    return any(len({cell[i] for i in group}) > 1 for group in case.step.groups.values())


def _differs(subject: Subject, case: Case, rival: str) -> bool:
    if rival == subject.mode:
        return False
    expected = subject.expected(case.step)
    if expected is None:
        return False
    return expected != oracles.weights(rival, case.step, policy=subject.policy)
