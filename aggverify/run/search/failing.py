"""Observations made to explain a step without a result: who failed, and where the ranks parted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis, recognised
from aggverify.diagnosis.broadcasts import SAMPLES_AT_TOKENS, samples_at_tokens
from aggverify.execution.executor import Executor
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.world import Fault, Stack

NOTHING_REDUCED = "no rank issued a collective"


def failure(subject: Subject, finding: Finding, executor: Executor) -> Diagnosis | None:
    """Diagnose it by what its ranks did, and by whether it passes without context parallelism."""
    signs = []
    layout = finding.case.layout
    if layout.cp_size > 1:
        alone = finding.case.with_layout(replace(layout, cp_size=1))
        if executor.run(subject, [alone])[0].failure is None:
            signs.append("only-under-context-parallel")
    if finding.fault is not None and finding.fault.kind == "disagree":
        # In its own job, so that what it issued is known.
        fault = executor.run(subject, [RunSpec(finding.case, alone=True)])[0].failure
        if fault is not None and fault.kind == "disagree" and not any(fault.traces.values()):
            signs.append(NOTHING_REDUCED)
    if finding.fault is not None and (_parted(finding.fault) or skipped(finding.fault)):
        signs.append("not-all-inside")
    error = finding.fault.error if finding.fault is not None else None
    if error is not None and samples_at_tokens(finding.case, error):
        signs.append(SAMPLES_AT_TOKENS)
    return recognised(subject, finding, *signs)


def _parted(fault: Fault) -> bool:
    """Whether some ranks wait for others that have left the candidate, or never were in it.

    Those are seen in none of its code, or in a collective of the engine's where the others issue
    one of the candidate's. A rank asleep outside any collective is another matter.
    """
    inside = {_in_candidate(threads) for threads in fault.stacks.values()}
    asleep = fault.kind == "blocked" and fault.rank in fault.stacks.keys() - fault.inside.keys()
    of_candidate = {call is not None and bool(call.place) for call in fault.apart.values()}
    return (len(inside) == 2 and not asleep) or len(of_candidate) == 2


def skipped(fault: Fault) -> bool:
    """Whether some rank has left the candidate with fewer collectives than another of its group.

    Counted in what was issued, as the place where ranks part may mislead: one of the engine's that
    looks like the candidate's is joined, and they part later.
    """
    if fault.kind not in ("blocked", "diverged") or fault.exit_status is not None:
        return False
    issued: dict[tuple[str, tuple[int, ...]], Counter[int]] = {}
    for rank, calls in fault.traces.items():
        for call in calls:
            if call.place and call.group:
                issued.setdefault((call.group, call.ranks), Counter())[rank] += 1
    through = {rank for rank in fault.traces if _is_through(fault, rank)}
    return any(
        counts[rank] < max(counts.values())
        for (_, ranks), counts in issued.items()
        for rank in through.intersection(ranks)
    )


def _is_through(fault: Fault, rank: int) -> bool:
    """Whether it has answered, or is in a collective that is not the candidate's."""
    if rank in fault.errors:
        return False
    call = fault.inside.get(rank)
    return rank not in fault.stacks if call is None else not call.place


def _in_candidate(threads: Sequence[Stack]) -> bool:
    return any(frame.owner == "candidate" for stack in threads for frame in stack.frames)
