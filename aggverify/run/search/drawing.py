"""Hypothesis as a search engine: draw cases of a space until one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.strategies import SearchStrategy

from aggverify.checks import Finding
from aggverify.execution.budget import MIN_EXAMPLES
from aggverify.generation.repeatable import deterministic_draws
from aggverify.generation.space import Space
from aggverify.generation.strategies import related
from aggverify.run.search.pipeline import Judged, Pipeline, Submit
from aggverify.steps.case import Case

MAX_BATCH = 24
"""Cases on the ranks at a time, while the next ones are drawn."""
LAYOUTS = 4
"""Layouts of each drawn step: drawing a step costs more than running it, another layout little."""


Drawn = TypeVar("Drawn")


class Enough(BaseException):
    """Leaves the search at once; not an Exception, so that Hypothesis does not study it."""


def drawn(space: Space, number: int, seed: int) -> list[Case]:
    """So many different cases of a space, or as many as it is found to have; nothing is run."""
    found: dict[Case, None] = {}

    def draw(cases: Sequence[Case]) -> None:
        found.update(dict.fromkeys(cases))
        if len(found) >= number:
            raise Enough

    _draw(space, draw, max_examples=number, seed=seed)
    return list(found)[:number]


def _draw(
    space: Space, draw: Callable[[Sequence[Case]], None], *, max_examples: int, seed: int
) -> None:
    """Pass on what Hypothesis draws, until ``draw`` raises Enough."""
    _run(related(space, LAYOUTS), draw, (Phase.generate,), max_examples=max_examples, seed=seed)


def _run(
    strategy: SearchStrategy[Drawn],
    draw: Callable[[Drawn], None],
    phases: Sequence[Phase],
    *,
    max_examples: int,
    seed: int,
) -> None:
    # Nothing is shrunk or stored here: shrink.py and the run's own store do that
    # (reports/shrinkers.md).
    configured = settings(
        max_examples=max_examples,
        phases=phases,
        database=None,
        deadline=None,
        derandomize=False,
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with suppress(Enough), deterministic_draws():
        hypothesis.seed(seed)(configured(hypothesis.given(strategy)(draw)))()


def search(
    space: Space,
    submit: Submit,
    *,
    max_examples: int,
    seed: int,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
) -> Finding | None:
    """Return the finding on the smallest of the first cases that fail, or None.

    Drawn in batches, each while the ranks run the one before. ``deadline`` is in seconds of
    ``clock``.
    """
    judged: Judged = {}
    batch: list[Case] = []
    pipeline = Pipeline(submit)
    taken: set[Case] = set()

    def draw(drawn: Sequence[Case]) -> None:
        late = clock() > deadline and len(judged) >= MIN_EXAMPLES
        if late or len(taken) >= max_examples or any(judged.values()):
            raise Enough
        new = [case for case in dict.fromkeys(drawn) if case not in taken]
        new = new[: max_examples - len(taken)]
        taken.update(new)
        batch.extend(new)
        # Small batches first: most faults show at once.
        if len(batch) >= min(MAX_BATCH, 2 + len(judged)):
            judged.update(pipeline.push(list(batch)))
            batch.clear()

    _draw(space, draw, max_examples=max_examples, seed=seed)
    if batch and not any(judged.values()):
        judged.update(pipeline.push(batch))
    judged.update(pipeline.drain())
    return min(filter(None, judged.values()), key=lambda found: found.case.size, default=None)
