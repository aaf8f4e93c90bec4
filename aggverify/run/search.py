"""Hypothesis as a search engine: draw cases of a space, and shrink the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings

from aggverify.case import Case
from aggverify.checks import Finding
from aggverify.strategies import Space, cases

SHRINK_SECONDS = 10.0
"""Shrinking stops here at the latest; what is smallest by then is shown."""


class _OutOfTime(BaseException):
    """Leaves the search at once; not an Exception, so that Hypothesis does not study it."""


@lru_cache(maxsize=32)
def _failure_type(code: str) -> type[Exception]:
    """One exception type per code, so that shrinking never drifts from one fault to another."""
    return type(code, (Exception,), {})


def search(
    space: Space,
    judge: Callable[[Case], Finding | None],
    *,
    max_examples: int,
    seed: int,
    deadline: float,
) -> Finding | None:
    """The shrunk finding of the first failing case, or None.

    ``deadline`` is in ``time.monotonic`` seconds; a search that has found something may go on
    shrinking for SHRINK_SECONDS beyond it.
    """
    smallest: list[Finding] = []
    ends = deadline

    def test(case: Case) -> None:
        nonlocal ends
        if time.monotonic() > ends:
            raise _OutOfTime
        finding = judge(case)
        if finding is None:
            return
        if not smallest:
            ends = time.monotonic() + SHRINK_SECONDS
        if not smallest or finding.code == smallest[0].code:
            if not smallest or _size(case) <= _size(smallest[0].case):
                smallest[:] = [finding]
            raise _failure_type(finding.code)

    configured = settings(
        max_examples=max_examples,
        phases=(Phase.generate, Phase.shrink),
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    run = hypothesis.seed(seed)(configured(hypothesis.given(cases(space))(test)))
    try:
        run()
    except _OutOfTime:
        pass
    except Exception:
        if not smallest:
            raise  # not a finding: a fault of ours
    return smallest[0] if smallest else None


def _size(case: Case) -> tuple[int, int, int, int, int]:
    """What "smaller" means to a reader: layout, samples, tokens, prompts, losses."""
    layout, step = case.layout, case.step
    return (
        layout.world_size * layout.num_microbatches,
        len(step.samples),
        step.num_response_tokens,
        sum(s.prompt_length for s in step.samples),
        sum(x != 0 for x in case.losses),
    )
