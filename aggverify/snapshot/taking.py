"""A reducer on the corpus as it is now: what is run, and what is pinned of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aggverify.checks.spaces import spread
from aggverify.errors import NotJudged
from aggverify.execution.executed import Execution
from aggverify.execution.executor import Executor
from aggverify.execution.subject import Subject
from aggverify.generation.corpus import corpus
from aggverify.oracles import Step
from aggverify.snapshot.file import NO_MODE, NumericEnvironment
from aggverify.snapshot.pinned import EntryKey, Pinned, PinnedEntry
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout

LOSSES = 2
"""Losses of ranks in full, at most: a digest shows that more have moved, the value how far."""
BATCH = 64
"""Cases that ranks run at once."""
Ran = Mapping[EntryKey, Execution]


def mode_name(subject: Subject) -> str:
    """Return the mode as a snapshot names it."""
    return subject.claim.mode or NO_MODE


def environment(description: Mapping[str, Any]) -> NumericEnvironment:
    """Return the ranks' environment, as their template process describes it."""
    return NumericEnvironment(**description["environment"])


def cases(subject: Subject) -> Iterator[tuple[EntryKey, Case]]:
    """Yield the cases that the subject's convention and claims let it be given.

    These are every case of the corpus, on one rank and as it is laid out, in its own dtype and in
    float32.
    """
    space = spread(subject, dp=8, cp=8, micro_batches=64, min_units=1, empty_samples=True)
    space = replace(space, rejects="rejection" in subject.features)
    taken: set[Case] = set()
    for hard in corpus():
        laid_out = hard.case.layout
        layouts = dict.fromkeys((Layout.trivial(len(hard.case.step.samples)), laid_out))
        for layout in layouts:
            for dtype in dict.fromkeys((hard.case.dtype, "float32")):
                losses = uneven_losses(hard.case.step)
                case = Case(hard.case.step, layout, losses, dtype)
                if case in space and case not in taken:
                    taken.add(case)  # many a step of the corpus has several layouts
                    yield EntryKey(mode_name(subject), hard.name, named(layout), dtype), case


def uneven_losses(step: Step) -> tuple[float, ...]:
    """Positive and distinct, and of many bits: another order of additions is another sum."""
    return tuple((3 * t + 1) / (40 + t % 7) for t in range(step.num_response_tokens))


def named(layout: Layout) -> str:
    """``dp2.cp2.mb1.zigzag``: its sizes, in one word."""
    kind = f".{layout.cp_kind}" if layout.cp_size > 1 else ""
    return f"dp{layout.dp_size}.cp{layout.cp_size}.mb{layout.num_microbatches}{kind}"


def run(subject: Subject, executor: Executor, wanted: Iterable[tuple[EntryKey, Case]]) -> Ran:
    """Run the cases in batches, which changes no bit.

    A reduction that cases share only adds zeros to the one number of each token.
    """
    pairs = list(wanted)
    found: dict[EntryKey, Execution] = {}
    for start in range(0, len(pairs), BATCH):
        part = pairs[start : start + BATCH]
        done = executor.run(subject, [case for _, case in part])
        found |= {key: execution for (key, _), execution in zip(part, done, strict=True)}
    return found


def steady(subject: Subject, executor: Executor) -> Ran:
    """Run all cases twice, by other ranks in another order; raises NotJudged where bits differ."""
    subject.must_reduce()
    wanted = list(cases(subject))
    if not wanted:
        raise NotJudged(f"no case of the corpus can be given to {subject.target}")
    once = run(subject, executor, wanted)
    executor.fresh()
    again = run(subject, executor, reversed(wanted))
    for key, _ in wanted:
        if str(pinned(once[key])) != str(pinned(again[key])):
            raise NotJudged(
                f"the same step twice gives different bits ({key}): a snapshot would never be met "
                f"again (aggverify check shows more)"
            )
    return once


def rows(execution: Execution) -> dict[str, list[float]]:
    """Return all that is pinned of it, by name.

    That is the value, every rank's own losses, the weights, and the numbers of each key of the
    logs, rank after rank.
    """
    value = [] if execution.value is None else [float(execution.value)]
    found = {"value": value, "losses": [x for rank in execution.local_losses for x in rank]}
    if execution.weights is not None:
        found["weights"] = execution.weights.tolist()
    logs = [log for rank in execution.logs for log in rank]
    # A log that no trainer can read has no row: its absence is what is pinned.
    read = [pair for log in logs if isinstance(log, tuple) for pair in log]
    for name, numbers in sorted(read, key=lambda pair: pair[0]):
        found.setdefault(f"log:{name}", []).extend(numbers)
    return found


def pinned(execution: Execution) -> PinnedEntry:
    """Return what a snapshot has of it."""
    fault = execution.failure
    if fault is not None:
        raised = f":{fault.error.type}" if fault.error is not None else ""
        return PinnedEntry(fault=fault.kind + raised)
    every = rows(execution).items()
    return PinnedEntry({name: _pinned(name, row) for name, row in every})


def _pinned(name: str, row: Sequence[float]) -> Pinned:
    return Pinned.of(row, LOSSES, bare=True) if name == "losses" else Pinned.of(row)


def computes_in(executions: Sequence[Execution]) -> str:
    """Return the precision that the reducer's own sums have.

    It is float32 where every loss it returned is a number of float32, whatever it was given.
    """
    losses = [x for e in executions for rank in e.local_losses for x in rank]
    with np.errstate(over="ignore"):
        narrow = np.array(losses, dtype=np.float64).astype(np.float32).astype(np.float64)
    return "float32" if np.array_equal(narrow, losses, equal_nan=True) else "float64"
