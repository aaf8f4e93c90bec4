"""Whether a deviation is float32 arithmetic inside the candidate, or a mistake of that size.

What distinguishing steps on one rank show is known before anything is judged
(planning/identify.py). A constant can be exact there and rounded elsewhere: ``tokens / (dp * cp)``
made in float32, a factor of three micro-batches. Where every count and every size is a power of two
nothing is rounded, and a mistake is as large as anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, product

from aggverify.checks import Check, Finding
from aggverify.checks.layout import COMBINED
from aggverify.checks.spaces import spread
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.generation.space import Space
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import CpKind, Layout

LOW = "float32"


def explained_by_rounding(
    check: Check, subject: Subject, finding: Finding, executions: Sequence[Execution]
) -> bool:
    """Whether the check would find nothing if the candidate computed in float32."""
    if subject.computes_in == LOW or finding.traits.about_rounding:
        return False
    return check.judge(subject.knowing(computes_in=LOW), executions) is None


def rounds(check: Check, subject: Subject, space: Space, executor: Executor) -> bool:
    """Whether such deviations vanish where float32 is exact.

    On the check's own cases of that kind, or, if it has none, in the weights of every layout.
    """
    cases = [case for case in map(check.project, exact_cases(space.cp_kinds)) if case in space]
    cases = [case for case in dict.fromkeys(cases) if _is_exact(case)]
    if not cases:
        check, space = COMBINED, spread(subject, min_units=1)
        cases = [case for case in exact_cases(space.cp_kinds) if case in space]
    groups = [check.variants(case) for case in cases]
    done = iter(executor.run(subject, list(chain.from_iterable(groups))))
    low = subject.knowing(computes_in=LOW)
    for group in groups:
        executions = [next(done) for _ in group]
        # A deviation that float32 does not explain is evidence neither for it nor against it.
        if check.judge(subject, executions) and not check.judge(low, executions):
            return False
    return True


def exact_cases(kinds: Sequence[CpKind]) -> Iterator[Case]:
    """Yield layouts of one and two of each size.

    Four tokens a sample, two samples a prompt group, one group a micro-batch. Behind a prompt of
    one token every shard has a power of two of them as well.
    """
    for d, c, k in product((1, 2), repeat=3):
        sample = b"\1" * 4
        step = Step(tuple(Sample(1, sample, i, i // 2) for i in range(2 * d * k)))
        cells = tuple(
            tuple((2 * (k * r + j), 2 * (k * r + j) + 1) for j in range(k)) for r in range(d)
        )
        for kind in kinds if c > 1 else kinds[:1]:
            yield Case(step, Layout(cells, c, kind), plain_losses(step))


def _is_exact(case: Case) -> bool:
    """Whether every count is still a power of two, after a check has brought it into its space."""
    step = case.step
    cells = [members for _, _, members in case.layout.cells()]
    units = [*step.groups.values(), *step.rollouts.values(), *cells, range(len(step.samples))]
    tokens = [sum(step.samples[i].num_unmasked for i in unit) for unit in units]
    numbers = [len(step.samples), step.num_rollouts, step.num_groups, *map(len, cells)]
    return all(n & (n - 1) == 0 for n in (*tokens, *numbers))
