"""Send cases to the ranks and turn their replies into what checks judge: weights and a scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aggverify.case import Case
from aggverify.engines import Sizes
from aggverify.subject import Subject
from aggverify.world import Fault, Job, Outcome

if TYPE_CHECKING:
    from aggverify.world import Template

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a case has no result: what the ranks did instead."""

    kind: str
    rank: int | None
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """One case as the ranks ran it.

    ``weights``: float64, one entry per response token, the gradient after the engine.
    ``value``: the reported step scalar, exact in the local losses; None when one is not finite.
    """

    case: Case
    weights: Weights | None = None
    value: Fraction | None = None
    local_losses: tuple[tuple[float, ...], ...] = ()
    failure: Failure | None = None


class Laboratory:
    """Runs cases of one subject on the worlds of one template process."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self.executed = 0
        self.worlds: dict[int, int] = {}

    def run(self, subject: Subject, cases: Sequence[Case]) -> list[Execution]:
        """Execute every case; order is kept, faults are values."""
        return self.submit(subject, cases)()

    def submit(self, subject: Subject, cases: Sequence[Case]) -> Callable[[], list[Execution]]:
        """Start the cases; calling the result waits for them."""
        jobs = [Job(case.layout.world_size, _payload(subject, case)) for case in cases]
        self.executed += len(jobs)
        for job in jobs:
            self.worlds[job.world] = self.worlds.get(job.world, 0) + 1
        pending = self._template.submit(jobs)

        def wait() -> list[Execution]:
            return [
                _execution(subject, case, outcome)
                for case, outcome in zip(cases, pending.wait(), strict=True)
            ]

        return wait

    def fresh(self) -> None:
        """Replace every world, so that nothing of earlier cases can remain."""
        self._template.restart_worlds()


def _payload(subject: Subject, case: Case) -> dict[str, Any]:
    return {
        "case": case.to_json(),
        "function": subject.function,
        "convention": subject.convention.name,
        "engine": subject.engine.name,
        "mode": subject.mode,
        "divisor": subject.divisor,
    }


def _execution(subject: Subject, case: Case, outcome: Outcome) -> Execution:
    if isinstance(outcome, Fault):
        return Execution(case, failure=_failure(outcome))
    replies = outcome.replies
    weights = np.frombuffer(replies[0].blob, dtype=np.float64)
    if len({reply.data["checksum"] for reply in replies}) > 1:
        failure = Failure("disagree", None, "ranks hold different gradients after the reduction")
        return Execution(case, failure=failure)
    losses = tuple(tuple(map(float.fromhex, r.data["losses"])) for r in replies)
    counts = [n for reply in replies for n in reply.data["counts"]]
    return Execution(case, weights, _value(subject, case, losses, counts), losses)


def _value(
    subject: Subject, case: Case, losses: tuple[tuple[float, ...], ...], counts: list[int]
) -> Fraction | None:
    layout = case.layout
    # Gathered: all CP ranks hold copies of one value, which counts once.
    stride = layout.cp_size if layout.cp_kind == "gathered" else 1
    flat = [x for rank in losses[::stride] for x in rank]
    if not np.isfinite(flat).all():
        return None
    sizes = Sizes(layout.dp_size, layout.cp_size, layout.num_microbatches, case.step.num_rollouts)
    return subject.engine.value([Fraction(x) for x in flat], counts, sizes)


def _failure(fault: Fault) -> Failure:
    detail = fault.traceback or "\n\n".join(
        f"rank {rank}:\n{stack}" for rank, stack in sorted(fault.stacks.items())
    )
    return Failure(fault.kind, fault.rank, fault.message, detail)
