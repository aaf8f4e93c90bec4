"""Data of a step as Python literals, as short as they can be read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from itertools import groupby

from aggverify.generation.corpus import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

_MANY = 8
"""Equal neighbours that are counted instead of written one by one."""


def samples(case: Case, *, counts_rejected: bool) -> list[str]:
    """Of each: prompt length, mask, rollout, its tokens, prompt group, its tokens, the
    context-parallel rank of each token; the mask before rejection, where one was."""
    step = case.step
    owners = [c for _, c, _ in token_owner(step, case.layout)]
    tokens = [s.num_original if counts_rejected else s.num_unmasked for s in step.samples]
    rejected = any(s.original_mask is not None for s in step.samples)
    found = []
    for s, start in zip(step.samples, step.offsets, strict=True):
        rollout = sum(tokens[i] for i in step.rollouts[s.rollout])
        group = sum(tokens[i] for i in step.groups[s.group])
        ranks = owners[start : start + s.response_length]
        words = [s.prompt_length, row(s.loss_mask), s.rollout, rollout, s.group, group, row(ranks)]
        words += [row(s.original_mask or s.loss_mask)] * rejected
        found.append(f"({', '.join(map(str, words))})")
    return found


def counts(case: Case, *, counts_rejected: bool) -> str:
    """The step's own, as arguments by name."""
    step = case.step
    tokens = [s.num_original if counts_rejected else s.num_unmasked for s in step.samples]
    rollouts = [sum(tokens[i] for i in members) for members in step.rollouts.values()]
    return (
        f"num_rollouts={step.num_rollouts}, num_groups={step.num_groups}, "
        f"num_tokens={sum(tokens)}, step_rollout_tokens={rollouts}"
    )


def cells(case: Case) -> str:
    """Samples by data-parallel rank and micro-batch."""
    return str([[list(cell) for cell in rank] for rank in case.layout.micro_batches])


def losses(case: Case) -> str:
    """The losses of all tokens."""
    if len(case.losses) > _MANY and case.losses == plain_losses(case.step):
        return f"[(3 * t + 1) / 16 for t in range({len(case.losses)})]"
    return row(case.losses)


def row(numbers: Iterable[float | Fraction]) -> str:
    """A list; runs of equal numbers are counted."""
    parts: list[str] = []
    single: list[str] = []
    for text, run in groupby(map(_number, numbers)):
        count = sum(1 for _ in run)
        if count < _MANY:
            single += [text] * count
            continue
        parts += [f"[{', '.join(single)}]"] * bool(single)
        parts.append(f"[{text}] * {count}")
        single = []
    parts += [f"[{', '.join(single)}]"] * (bool(single) or not parts)
    return " + ".join(parts)


def _number(number: float | Fraction) -> str:
    if isinstance(number, Fraction):
        return str(number).replace("/", " / ")
    return str(number) if math.isfinite(number) else f'float("{number}")'
