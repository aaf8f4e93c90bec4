"""Steps as one line of text, for people: catalogue entries, command lines, tests.

``2/1101`` is a sample with two prompt tokens and a response masked 1101; ``+`` joins the samples
of one rollout, a blank separates the rollouts of one prompt group, ``;`` separates groups. A bare
mask has one prompt token, and ``1{257}`` is a mask of so many ones. Micro-batches: ``0,1 2 | 3 4``
puts samples 0 and 1 into the first micro-batch of rank 0, sample 2 into its second, 3 and 4 into
those of rank 1.
"""

from __future__ import annotations

import itertools
import re

from aggverify.errors import InputError
from aggverify.oracles import Sample, Step

_SAMPLE = re.compile(r"(?:(\d{1,9})/)?((?:[01](?:\{\d{1,7}\})?)*)")
_RUN = re.compile(r"([01])(?:\{(\d+)\})?")
_MOST = 1 << 20
"""Response tokens that one sample in this notation may have."""


def parse_step(text: str) -> Step:
    """Return the step a line of text describes; raises InputError naming the part that is wrong.

    ``2/1101 1/11; 3/1+4/10``: prompt length and mask of a sample; ``+`` joins the samples of one
    rollout, a blank separates rollouts, ``;`` prompt groups.
    """
    rollouts = itertools.count()
    samples = []
    for group, words in enumerate(text.split(";")):
        for word in words.split():
            rollout = next(rollouts)
            samples += [_sample(part, rollout, group) for part in word.split("+")]
    if not samples:
        raise InputError(f"no sample in {text!r}; write for example '2/110 3/1; 1/11'")
    return Step(tuple(samples))


def _sample(text: str, rollout: int, group: int) -> Sample:
    match = _SAMPLE.fullmatch(text)
    if match is None or not match[2]:
        raise InputError(
            f"not a sample: {text!r}; write PROMPT_LENGTH/MASK, for example 2/1101, or a bare mask"
        )
    runs = [(int(bit), int(times or 1)) for bit, times in _RUN.findall(match[2])]
    if not 0 < sum(times for _, times in runs) <= _MOST:
        raise InputError(f"a response of 1 to {_MOST} tokens, got {text!r:.200}")
    mask = tuple(bit for bit, times in runs for _ in range(times))
    return Sample(int(match[1] or 1), mask, rollout, group)


def format_step(step: Step) -> str:
    """Return the line :func:`parse_step` reads; ids are renumbered in order of appearance."""
    groups = []
    for members in step.groups.values():
        rollouts: dict[int, list[str]] = {}
        for i in members:
            s = step.samples[i]
            bits = "".join(str(m) for m in s.loss_mask)
            rollouts.setdefault(s.rollout, []).append(f"{s.prompt_length}/{bits}")
        groups.append(" ".join("+".join(parts) for parts in rollouts.values()))
    return "; ".join(groups)


def parse_micro_batches(text: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Sample indices per rank and micro-batch from ``0,1 2 | 3 4``."""
    try:
        return tuple(
            tuple(tuple(int(i) for i in cell.split(",")) for cell in rank.split())
            for rank in text.split("|")
        )
    except ValueError as error:
        raise InputError(f"not micro-batches: {text!r}; write for example '0,1 2 | 3 4'") from error
