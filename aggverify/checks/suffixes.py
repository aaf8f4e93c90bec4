"""Logs whose keys say how they are merged: by what follows the colon, as Tinker's client does
(``chunked_fwdbwd_helpers``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject

OBJECTIVE = "loss:sum"
"""The key that must be the step scalar."""
Values = Sequence[Fraction]


def _mean(values: Values, data: Sequence[int]) -> Fraction:
    return sum((v * n for v, n in zip(values, data, strict=True)), Fraction(0)) / (sum(data) or 1)


_MERGED: Mapping[str, Callable[[Values, Sequence[int]], Fraction]] = {
    "sum": lambda values, data: sum(values, Fraction(0)),
    "mean": _mean,
    "min": lambda values, data: min(values),
    "max": lambda values, data: max(values),
}
"""``slack``, ``hash2`` and ``unique`` are no numbers of the losses alone."""


def applies(subject: Subject) -> bool:
    """Whether the convention's logs are such."""
    return getattr(subject.convention, "logs", "engine") == "suffixes"


def is_compared(key: str) -> bool:
    """Whether its merged value is known."""
    return key.rpartition(":")[2] in _MERGED


def merged(key: str, values: Values, ran: Execution) -> Fraction:
    """One value a rank and micro-batch, each weighted by its data where the key is a mean."""
    layout = ran.case.layout
    data = [
        len(cell) for rank in layout.micro_batches for _ in range(layout.cp_size) for cell in rank
    ]
    return _MERGED[key.rpartition(":")[2]](values, data)


def malformed(logs: Mapping[str, Mapping[str, tuple[float, ...]]]) -> str | None:
    """What is wrong with logs, by where they were made: a key without a reduction ends the client,
    and one that is not in all of them is left out without a word."""
    every = dict.fromkeys(key for log in logs.values() for key in log)
    for key in every:
        if key.count(":") != 1:
            return f"log[{key!r}] names no reduction, as {key.replace(':', '_')}:mean does"
        if missing := [where for where, log in logs.items() if key not in log]:
            return f"log[{key!r}] is not in the log of {missing[0]}, and so in none that is merged"
    pairs = (key for log in logs.values() for key, numbers in log.items() if len(numbers) != 1)
    return next((f"log[{key!r}] is a pair, and no number" for key in pairs), None)
