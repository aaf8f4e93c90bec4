"""Numbers, tokens and steps as people read them: plain lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby

from aggverify.report.model import Sample, Step

MAX_MASK = 64
"""Characters of a mask drawn at most."""
MAX_ROWS = 12
"""Samples drawn at most; a shrunk case has one or two."""
_SIGNS = {"unmasked": "#", "masked": ".", "rejected": "x"}


def counted(n: int, noun: str) -> str:
    """``1 check``, ``2 checks``."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def fraction(value: Fraction) -> str:
    """A fraction as ``3/8``; one too long to read as a decimal."""
    text = str(value)
    return text if len(text) <= 24 else f"{float(value):.17g}"


def number(value: float) -> str:
    """An observed weight as the simple fraction it rounds, else as a decimal."""
    if not math.isfinite(value):
        return str(value)
    simple = Fraction(value).limit_denominator(10**6)
    if abs(float(simple) - value) <= 1e-12 * abs(value):
        return str(simple)
    return f"{value:.17g}"


def ratio(expected: Fraction, observed: float) -> Fraction | None:
    """The simplest fraction that the observed weight over the expected one can be."""
    if not expected or not math.isfinite(observed):
        return None
    exact = Fraction(observed) / expected
    simple = exact.limit_denominator(10**6)
    return simple if abs(simple - exact) <= Fraction(1, 10**12) * abs(exact) else exact


def token_name(step: Step, token: int) -> str:
    """``sample 1, response token 0`` for a flat index."""
    sample, inside = step.place(token)
    return f"sample {sample}, response token {inside}"


def drawing(step: Step) -> Iterator[str]:
    """The step, one line a sample: where it is, its prompt as ``··`` and its mask as ``#.``."""
    kind = f" ({step.cp_kind})" if step.cp_size > 1 else ""
    yield (
        f"step: {counted(step.prompts, 'prompt')}, {counted(step.rollouts, 'rollout')}, "
        f"{counted(len(step.samples), 'sample')}; dp={step.dp_size} cp={step.cp_size}{kind} "
        f"micro-batches={step.micro_batches} dtype={step.dtype}"
    )
    shown = step.samples[:MAX_ROWS]
    for i, sample in enumerate(shown):
        prompt = "·" * min(sample.prompt_length, 12) + "…" * (sample.prompt_length > 12)
        yield (
            f"  sample {i}  dp rank {sample.dp_rank}{_cp_ranks(step, sample)}  "
            f"micro-batch {sample.micro_batch}  "
            f"prompt {prompt}  mask {_mask(sample)}  "
            f"(prompt group {sample.prompt_group}, rollout {sample.rollout})"
        )
    if len(step.samples) > MAX_ROWS:
        yield f"  … and {counted(len(step.samples) - MAX_ROWS, 'more sample')}"
    signs = {run.mask for sample in shown for run in sample.runs}
    legend = [". masked"] * ("masked" in signs)
    legend += ["x rejected after the fact"] * ("rejected" in signs)
    split = any(len({run.cp_rank for run in sample.runs}) > 1 for sample in shown)
    legend += ["| from one context-parallel rank to another"] * split
    if legend:
        yield f"  ({', '.join(['# unmasked', *legend])})"


def _cp_ranks(step: Step, sample: Sample) -> str:
    """The context-parallel ranks of its response, in the order of its tokens."""
    if step.cp_size == 1 or not sample.runs:
        return ""
    ranks = [str(rank) for rank, _ in groupby(sample.runs, key=lambda run: run.cp_rank)]
    more = "|…" if len(ranks) > MAX_ROWS else ""
    return f"  cp rank{'s' if len(ranks) > 1 else ''} {'|'.join(ranks[:MAX_ROWS])}{more}"


def _mask(sample: Sample) -> str:
    """The mask, a sign a token; the middle of a long one left out."""
    head, shown, last = "", 0, None
    for run in sample.runs:
        head += "|" if last is not None and run.cp_rank != last else ""
        taken = min(run.tokens, MAX_MASK + 1 - shown)
        head += _SIGNS[run.mask] * taken
        shown, last = shown + taken, run.cp_rank
        if shown > MAX_MASK:
            return f"{head[: MAX_MASK // 2]}…{_end(sample)} ({sample.response_length} tokens)"
    return head


def _end(sample: Sample) -> str:
    """The last signs; nothing where not all runs are told."""
    if sum(run.tokens for run in sample.runs) < sample.response_length:
        return ""
    text = ""
    for run in reversed(sample.runs):
        text = _SIGNS[run.mask] * min(run.tokens, MAX_MASK // 4 - len(text)) + text
        if len(text) == MAX_MASK // 4:
            break
    return text
