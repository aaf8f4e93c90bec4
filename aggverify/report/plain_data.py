"""Data of a step as Python literals, as a script has them."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.conventions import Calling
from aggverify.conventions.plain_batch import formed, losses_of, owned, ranks, visible
from aggverify.conventions.plain_text import row
from aggverify.conventions.rows import Rows, places
from aggverify.generation.corpus import plain_losses
from aggverify.steps.case import Case

_MANY = 8
"""Losses that are said by their rule, where they have one."""
Counts = Sequence[Sequence[int]]
"""By data-parallel rank and micro-batch."""


def losses(case: Case) -> str:
    """The losses of all tokens."""
    if len(case.losses) > _MANY and case.losses == plain_losses(case.step):
        return f"[(3 * t + 1) / 16 for t in range({len(case.losses)})]"
    return row(case.losses)


def is_gathered(case: Case) -> bool:
    """Whether ranks have losses whose gradient is another's."""
    return case.layout.cp_size > 1 and case.layout.cp_kind == "gathered"


def counts(case: Case, counts_rejected: bool) -> Counts:
    """What the trainer counts of a micro-batch where the reducer does not say."""
    step = case.step
    tokens = [s.num_original if counts_rejected else s.num_unmasked for s in step.samples]
    return [[sum(tokens[i] for i in cell) for cell in rank] for rank in case.layout.micro_batches]


def cells(
    case: Case, calling: Calling, counts: Counts | None = None, *, only_first: bool = False
) -> str:
    """Of every rank its micro-batches: which losses it has there, what the candidate is told, which
    of these losses are its own where it has others' too, and how many tokens are counted."""
    found = []
    told = zip(ranks(case), calling.told.cells, strict=True)
    for (d, c), by_micro_batch in [next(told)] if only_first else told:
        own = []
        for k, text in enumerate(by_micro_batch):
            parts = [losses_of(case, d, c, k, calling.rows), text]
            if is_gathered(case):
                parts.append(_mine(case, d, c, k, calling.rows))
            if counts is not None:
                parts.append(str(counts[d][k]))
            own.append(f"({', '.join(parts)})")
        if len(own) == 1 and "\n" not in own[0]:
            found.append(f"    [{own[0]}],")
        else:
            found.append("\n".join(["    [", *(f"        {cell}," for cell in own), "    ],"]))
    return "\n".join(["[", *found, "]"])


def _mine(case: Case, d: int, c: int, k: int, rows: Rows | None) -> str:
    pairs = zip(visible(case, d, c, k), owned(case, d, c, k), strict=True)
    own = [[int(t in mine) for t in seen] for seen, mine in pairs]
    return f"{formed(own, None if rows is None else places(rows, case, d, c, k), 0)}.bool()"
