"""Numbers, tokens and steps as people read them: plain lines."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import groupby

from aggverify.model import Sample, Step

MAX_MASK = 64
"""Characters of a mask drawn at most."""
MAX_ROWS = 12
"""Samples drawn at most; a shrunk case has one or two."""
_SIGNS = {"unmasked": "#", "masked": ".", "rejected": "x"}


def counted(n: int, noun: str) -> str:
    """``1 check``, ``2 checks``; also ``2 batches`` and ``2 lists of checks``."""
    if n == 1:
        return f"1 {noun}"
    head, of, what = noun.partition(" of ")
    return f"{n} {head}{'es' if head.endswith('ch') else 's'}{of}{what}"


def fraction(value: Fraction) -> str:
    """Return a fraction as ``3/8``; one too long to read as a decimal."""
    text = str(value)
    return text if len(text) <= 24 else f"{float(value):.17g}"


def number(value: float) -> str:
    """Return an observed weight as the simple fraction it rounds, else as a decimal."""
    if not math.isfinite(value):
        return str(value)
    simple = Fraction(value).limit_denominator(10**6)
    if abs(float(simple) - value) <= 1e-12 * abs(value):
        return str(simple)
    return f"{value:.17g}"


def ratio(expected: Fraction, observed: float) -> Fraction | None:
    """Return the simplest fraction that the observed weight over the expected one can be."""
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
    """Yield one line a sample: where it is, its prompt as ``··`` and its mask as ``#.``."""
    kind = f" ({step.cp_kind})" if step.cp_size > 1 else ""
    yield (
        f"step: {counted(step.prompts, 'prompt')}, {counted(step.rollouts, 'rollout')}, "
        f"{counted(len(step.samples), 'sample')}; dp={step.dp_size} cp={step.cp_size}{kind} "
        f"micro-batches={step.micro_batches} dtype={step.dtype}"
    )
    shown = step.samples[:MAX_ROWS]
    for i, sample in enumerate(shown):
        prompt = "·" * min(sample.prompt_length, 12) + "…" * (sample.prompt_length > 12)
        ranks = cp_ranks(step, sample)
        plural = "s" if "|" in ranks else ""
        yield (
            f"  sample {i}  dp rank {sample.dp_rank}{f'  cp rank{plural} {ranks}' * bool(ranks)}  "
            f"micro-batch {sample.micro_batch}  "
            f"prompt {prompt}  mask {drawn_mask(sample)}  "
            f"(prompt group {sample.prompt_group}, rollout {sample.rollout})"
        )
    if len(step.samples) > MAX_ROWS:
        yield f"  … and {counted(len(step.samples) - MAX_ROWS, 'more sample')}"
    if words := legend(step):
        yield f"  ({words})"


def legend(step: Step) -> str:
    """Return what the signs of the masks mean; nothing where all is unmasked and on one rank."""
    shown = step.samples[:MAX_ROWS]
    used = {run.mask for sample in shown for run in sample.runs}
    words = [". masked"] * ("masked" in used)
    words += ["x rejected after the fact"] * ("rejected" in used)
    split = any(len({run.cp_rank for run in sample.runs}) > 1 for sample in shown)
    words += ["| from one context-parallel rank to another"] * split
    return ", ".join(["# unmasked", *words]) if words else ""


def signs(mask: str, tokens: int, most: int = MAX_MASK) -> str:
    """Return the signs of so many tokens with the same mask: ``###``, or ``# x 1000``."""
    return _SIGNS[mask] * tokens if tokens <= most else f"{_SIGNS[mask]} x {tokens}"


def cp_ranks(step: Step, sample: Sample) -> str:
    """Return the context-parallel ranks of its response, in the order of its tokens: ``0|1``."""
    if step.cp_size == 1 or not sample.runs:
        return ""
    ranks = [str(rank) for rank, _ in groupby(sample.runs, key=lambda run: run.cp_rank)]
    more = "|…" if len(ranks) > MAX_ROWS else ""
    return f"{'|'.join(ranks[:MAX_ROWS])}{more}"


def drawn_mask(sample: Sample, most: int = MAX_MASK) -> str:
    """Return the mask, a sign a token; the middle of a long one left out."""
    head, shown, last = "", 0, None
    for run in sample.runs:
        head += "|" if last is not None and run.cp_rank != last else ""
        taken = min(run.tokens, most + 1 - shown)
        head += _SIGNS[run.mask] * taken
        shown, last = shown + taken, run.cp_rank
        if shown > most:
            size = f"({sample.response_length} tokens)"
            return f"{head[: most // 2]}…{_end(sample, most // 4)} {size}"
    return head


def _end(sample: Sample, most: int) -> str:
    """Return the last signs of a mask; "" where the document does not list all of its runs."""
    if sum(run.tokens for run in sample.runs) < sample.response_length:
        return ""
    text = ""
    for run in reversed(sample.runs):
        text = _SIGNS[run.mask] * min(run.tokens, most - len(text)) + text
        if len(text) == most:
            break
    return text
