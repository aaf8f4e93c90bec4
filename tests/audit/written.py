"""Records as ranks would have written them, from rows of weights; and the verdict on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from aggverify.audit.records import RankFile, Record
from aggverify.audit.steps import RecordedRun, merged
from aggverify.audit.verdict import AuditRequest, audited
from aggverify.run.outcome.verdict import RunVerdict

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Pass:
    """One backward pass: rows of local weights as wide as the longest, and what is known of them.
    ``mask``: 1 for every weight that is given, without one."""

    weights: Rows
    mask: Rows | None = None
    ids: Sequence[int] | None = None
    groups: Sequence[int] | None = None
    positions: Rows | None = None
    name: str = "loss"
    more: Mapping[str, Any] = field(default_factory=dict)

    def record(self, step: int, micro_batch: int, rank: int, world: int) -> Record:
        width = max(map(len, self.weights), default=0)
        mask = self.mask or [[1] * len(row) for row in self.weights]
        arrays = {"weights": _padded(self.weights, width, np.float64)}
        arrays["mask"] = _padded(mask, width, np.uint8)
        for key, value in (("sample_ids", self.ids), ("group_ids", self.groups)):
            if value is not None:
                arrays[key] = np.array(value, dtype=np.int64)
        if self.positions is not None:
            arrays["positions"] = _padded(self.positions, width, np.int64)
        head = {"name": self.name, "quantity": "losses", "dtype": "float64", "step": step}
        head |= {"micro_batch": micro_batch, "rank": rank, "world": world, **self.more}
        return Record(head, arrays)


def _padded(rows: Rows, width: int, dtype: Any) -> Any:
    out = np.zeros((len(rows), width), dtype=dtype)
    for n, row in enumerate(rows):
        out[n, : len(row)] = [float(x) for x in row]
    return out


Step = Sequence[Sequence[Pass]]
"""Of each rank, its backward passes."""


def files(*steps: Step, extra: Sequence[Record] = ()) -> list[RankFile]:
    world = len(steps[0])
    ranks: list[list[Record]] = [[] for _ in range(world)]
    for number, step in enumerate(steps):
        for rank, passes in enumerate(step):
            ranks[rank] += [p.record(number, k, rank, world) for k, p in enumerate(passes)]
    for record in extra:
        ranks[record.head["rank"]].append(record)
    return [RankFile(Path(f"rank-{n}.agvr"), tuple(own), False) for n, own in enumerate(ranks)]


def run(*steps: Step, cp: int | None = None, tp: int | None = None) -> RecordedRun:
    return merged(files(*steps), cp, tp)


def verdict(
    *steps: Step,
    mode: str | None = "token_mean",
    engine: str = "ddp",
    cp: int | None = None,
    tp: int | None = None,
    **asked: Any,
) -> RunVerdict:
    return audited(run(*steps, cp=cp, tp=tp), AuditRequest("train.py", engine, mode, **asked))


def found(verdict: RunVerdict) -> Iterator[str]:
    """The code of every finding, in order."""
    return (report.finding.code for report in verdict.reports)


def row(weight: Fraction | float, tokens: int) -> list[float]:
    return [float(weight)] * tokens
