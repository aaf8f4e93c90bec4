"""Hypothesis as a search engine: draw cases of a space until one fails."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice

from hypothesis import HealthCheck, Phase, Verbosity, given, settings

from aggverify.checks import Finding
from aggverify.checks.spaces import spread
from aggverify.execution.subject import Subject
from aggverify.generation.backend import BACKEND, seeded
from aggverify.generation.space import Space
from aggverify.generation.strategies import related
from aggverify.generation.stream import LAYOUTS, CaseStream
from aggverify.run.search.batches import nothing
from aggverify.run.search.pipeline import Judged, Pipeline, Submit
from aggverify.steps.case import Case

MAX_BATCH = 24
"""Cases on the ranks at a time, while the next ones are drawn."""
FIRST_DRAWN = 2
"""Cases of the first batch: most faults show at once."""
STEPS = 16
"""Drawn at a time, with a seed of their own; the first is always the simplest."""


@lru_cache(maxsize=16)
def stream(spaces: tuple[Space, ...], seed: int) -> CaseStream:
    """Return the stream of these spaces; who asks again gets what was drawn already."""
    return CaseStream(spaces, lambda space, layouts=LAYOUTS: draws(space, seed, layouts))


def stream_of(subject: Subject) -> CaseStream:
    """Every layout that the subject can be given: of steps without an empty sample, and with."""
    full = spread(subject, cp=8, micro_batches=4, min_units=1)
    empty = replace(full, empty_samples=True, blank_a_unit=True)
    return stream((full, empty), subject.claim.seed)


def drawn(space: Space, number: int, seed: int) -> list[Case]:
    """So many different cases of a space, or as many as it is found to have; nothing is run."""
    return list(islice(draws(space, seed), number))


def draws(space: Space, seed: int, layouts: int = LAYOUTS) -> Iterator[Case]:
    """Draw different cases of a space for as long as new ones come.

    ``layouts``: of each step at most. The first ones are the same, however many are asked for.
    """
    found: set[Case] = set()
    for n in count():
        some = dict.fromkeys(_some(space, f"{seed}/{n}", layouts))
        new = [case for case in some if case not in found]
        if not new:
            return
        found.update(new)
        yield from new


@lru_cache(maxsize=64)
def _some(space: Space, seed: str, layouts: int) -> tuple[Case, ...]:
    """Draw the cases of STEPS steps, once for all who ask."""
    found: list[Case] = []
    # What fails is made small elsewhere, stored cases in the same way (reports/shrinkers.md).
    configured = settings(
        max_examples=STEPS,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        derandomize=True,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        backend=BACKEND,
    )

    def keep(cases: tuple[Case, ...]) -> None:
        found.extend(cases)

    with seeded(seed):
        configured(given(related(space, layouts))(keep))()
    return tuple(found)


def search(
    cases: Iterable[Case],
    submit: Submit,
    *,
    max_examples: int,
    deadline: float = math.inf,
    least: int = 0,
    clock: Callable[[], float] = time.monotonic,
    then: Callable[[], None] = nothing,
) -> Finding | None:
    """Return the finding on the smallest of the first cases that fail, or None.

    They are drawn in batches, each while the ranks run the one before. ``deadline`` is in seconds
    of ``clock``; so many cases as ``least`` are judged however late it is. ``then`` is called while
    the last ones run.
    """
    judged: Judged = {}
    batch: list[Case] = []
    pipeline = Pipeline(submit)
    for case in islice(cases, max_examples):
        late = clock() > deadline and len(judged) >= least
        if late or any(judged.values()):
            break
        batch.append(case)
        if len(batch) >= min(MAX_BATCH, FIRST_DRAWN + len(judged)):
            judged.update(pipeline.push(batch))
            batch = []
    if batch and not any(judged.values()):
        judged.update(pipeline.push(batch))
    found = filter(None, pipeline.rest(judged, then).values())
    return min(found, key=lambda finding: finding.case.size, default=None)
