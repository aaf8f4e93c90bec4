"""Hypothesis as a search engine: draw cases of a space, and shrink the first that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings

from aggverify.checks import Finding
from aggverify.execution import limits
from aggverify.generation.space import Space
from aggverify.generation.strategies import related
from aggverify.run.search.pipeline import Judged, Pipeline, Submit
from aggverify.steps.case import Case

MIN_EXAMPLES = 20
"""Drawn however late it is: a slow machine must not turn a check into nothing."""
MAX_BATCH = 24
"""Cases on the ranks at a time, while the next ones are drawn."""
LAYOUTS = 4
"""Layouts of each drawn step: drawing a step costs more than running it, another layout little."""


class _Enough(BaseException):
    """Leaves the search at once; not an Exception, so that Hypothesis does not study it."""


class _Failing(Exception):
    """A case that fails."""


@lru_cache(maxsize=32)
def _failure_type(code: str) -> type[_Failing]:
    """One exception type per code, so that shrinking never drifts from one fault to another."""
    return type(code, (_Failing,), {})


def search(
    space: Space, submit: Submit, *, max_examples: int, seed: int, deadline: float
) -> Finding | None:
    """The shrunk finding of the first failing case, or None; a costly one as it was found.

    ``deadline`` is in ``time.monotonic`` seconds; a search that has found something may go on
    shrinking for ``limits.SHRINK_SECONDS`` beyond it.
    """
    judged = _survey(space, submit, max_examples, seed, deadline)
    if not any(judged.values()):
        return None
    smallest = min(filter(None, judged.values()), key=lambda f: size_of(f.case))
    if smallest.traits.costs_a_world:
        return smallest  # Hypothesis tries too much for what each of these costs
    return _shrink(space, submit, max_examples, seed, judged, smallest)


def _survey(space: Space, submit: Submit, max_examples: int, seed: int, deadline: float) -> Judged:
    """Draw in batches, each generated while the ranks run the one before; stop at a failure."""
    judged: Judged = {}
    batch: list[Case] = []
    pipeline = Pipeline(submit)
    taken: set[Case] = set()

    def draw(drawn: Sequence[Case]) -> None:
        late = time.monotonic() > deadline and len(judged) >= MIN_EXAMPLES
        if late or len(taken) >= max_examples or any(judged.values()):
            raise _Enough
        new = [case for case in dict.fromkeys(drawn) if case not in taken]
        new = new[: max_examples - len(taken)]
        taken.update(new)
        batch.extend(new)
        # Small batches first: most faults show at once.
        if len(batch) >= min(MAX_BATCH, 2 + len(judged)):
            judged.update(pipeline.push(list(batch)))
            batch.clear()

    _run(draw, space, max_examples, seed, (Phase.generate,))
    if batch and not any(judged.values()):
        judged.update(pipeline.push(batch))
    judged.update(pipeline.drain())
    return judged


def _shrink(
    space: Space,
    submit: Submit,
    max_examples: int,
    seed: int,
    judged: Judged,
    smallest: Finding,
) -> Finding:
    """The same draws again (known ones cost nothing), until Hypothesis has made one small."""
    ends = time.monotonic() + limits.SHRINK_SECONDS

    def test(drawn: Sequence[Case]) -> None:
        nonlocal smallest
        new = [case for case in drawn if case not in judged]
        if new:
            if time.monotonic() > ends:
                raise _Enough
            judged.update(zip(new, submit(new).findings(), strict=True))
        findings = [f for f in map(judged.__getitem__, drawn) if f and f.code == smallest.code]
        if findings:
            smallest = min((*findings, smallest), key=lambda f: size_of(f.case))
            raise _failure_type(smallest.code)

    _run(test, space, max_examples, seed, (Phase.generate, Phase.shrink))
    return smallest


def _run(
    test: Callable[[Sequence[Case]], None],
    space: Space,
    max_examples: int,
    seed: int,
    phases: tuple[Phase, ...],
) -> None:
    configured = settings(
        max_examples=max_examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    # Anything else is no finding, but a fault of ours.
    with suppress(_Enough, _Failing):
        hypothesis.seed(seed)(configured(hypothesis.given(related(space, LAYOUTS))(test)))()


def size_of(case: Case) -> tuple[int, int, int, int, int]:
    """What "smaller" means to a reader: layout, samples, tokens, prompts, losses."""
    layout, step = case.layout, case.step
    return (
        layout.world_size * layout.num_microbatches,
        len(step.samples),
        step.num_response_tokens,
        sum(s.prompt_length for s in step.samples),
        sum(x != 0 for x in case.losses),
    )
