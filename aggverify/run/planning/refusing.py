"""Does the candidate refuse prompt groups that are not whole? Asked before anything is judged."""

from __future__ import annotations

from aggverify.checks.refusal import refusal
from aggverify.execution.laboratory import Laboratory
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

_SPLIT = (("1/1 2/111; 3/11", "0 1,2"), ("1/1 2/111; 3/11", "0,2 | 1"))
"""A prompt group over two micro-batches, and over two ranks."""


def split_groups() -> tuple[Case, ...]:
    """The steps a candidate may refuse."""
    found = []
    for text, cells in _SPLIT:
        step = parse_step(text)
        found.append(Case(step, Layout(parse_micro_batches(cells)), plain_losses(step)))
    return tuple(found)


def settled(subject: Subject, laboratory: Laboratory) -> Subject:
    """The subject, and whether it refuses: then every other check keeps prompt groups whole."""
    if "straddling-groups" not in subject.features:
        return subject
    asked = [c for c in split_groups() if c.layout.world_size <= subject.max_world]
    refused = [words for e in laboratory.run(subject, asked) if (words := refusal(e))]
    if not refused:
        return subject
    note = f"refuses split prompt groups ({refused[0]}); all other checks keep groups whole"
    return subject.knowing(refuses_split_groups=True).noting(note)
