"""What was done to a mask, told from which tokens have a weight; right ones are told nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from aggverify.diagnosis import WeightObservation
from aggverify.diagnosis.masked import made_of_the_mask
from aggverify.diagnosis.shown import shown_by_weights
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_step

SUBJECT = Subject.of(Claim("r.py", "reduce", "native", "sum", "token_mean"))
STEPS = ("1/1", "1/1011; 1/001", "1/11101 1/0110; 1/1", "1/0101; 1/110; 1/1001011", "2/111; 1/11")
Changed = Callable[[list[list[int]]], list[list[int]]]


def observed(change: Changed, text: str) -> WeightObservation:
    """Weights of a token mean whose masks were changed; sums and counts are another matter."""
    step = parse_step(text)
    case = Case(step, Layout.trivial(len(step.samples)), plain_losses(step))
    masks = change([list(s.loss_mask) for s in step.samples])
    weights = np.array([bit / step.num_unmasked for mask in masks for bit in mask])
    return WeightObservation(case, weights, SUBJECT.expected(step))


def flat(change: Callable[[list[int]], list[int]]) -> Changed:
    """A change of the packed row."""

    def of(masks: list[list[int]]) -> list[list[int]]:
        row = iter(change([bit for mask in masks for bit in mask]))
        return [[next(row) for _ in mask] for mask in masks]

    return of


def twice(row: list[int]) -> list[int]:
    again = iter(row)
    return [next(again) if bit else 0 for bit in row]


def cut(mask: list[int], length: int) -> list[int]:
    return [*mask, *([0] * length)][:length]


@pytest.mark.parametrize(
    ("change", "sign", "words"),
    [
        (
            lambda masks: [[1 - b for b in m] for m in masks],
            "mask-inverted",
            "the mask is inverted",
        ),
        (lambda masks: [[1] * len(m) for m in masks], "mask-not-applied", "not applied"),
        (lambda masks: [[*m[1:], 0] for m in masks], "mask-shifted", "(mask[1:])"),
        (lambda masks: [[*m[1:], m[0]] for m in masks], "mask-shifted", "end to end"),
        (lambda masks: [[0, 0, *m][: len(m)] for m in masks], "mask-shifted", "(mask[:-2])"),
        (flat(lambda row: [*row[1:], 0]), "mask-shifted", "over sample ends (mask[1:])"),
        (flat(lambda row: [row[-1], *row[:-1]]), "mask-shifted", "over sample ends (mask[:-1])"),
        (flat(twice), "mask-twice", "applied twice"),
        (lambda masks: list(map(twice, masks)), "mask-twice", "applied twice"),
        (lambda masks: [sorted(m)[::-1] for m in masks], "mask-counted", "the first tokens"),
        (
            lambda masks: [cut(m[max(map(len, masks)) - len(m) :], len(m)) for m in masks],
            "mask-other-side",
            "padded right, the losses left",
        ),
        (
            lambda masks: [cut(o, len(m)) for m, o in zip(masks, masks[::-1], strict=True)],
            "mask-of-another",
            "from the end",
        ),
    ],
)
def test_what_was_done_to_the_mask_is_named(change: Changed, sign: str, words: str) -> None:
    seen = [observed(change, text) for text in STEPS]
    found = shown_by_weights(seen)
    assert found is not None and (found.sign, words in found.sentence) == (sign, True), found


@pytest.mark.parametrize(
    "change", [lambda masks: masks, lambda masks: [[0, *m[1:]] for m in masks]]
)
def test_a_mask_that_was_not_moved_is_told_nothing(change: Changed) -> None:
    assert made_of_the_mask([observed(change, text) for text in STEPS]) is None


def test_one_step_that_refutes_it_is_enough() -> None:
    seen = [observed(lambda masks: [[1] * len(m) for m in masks], text) for text in STEPS]
    seen[2].observed[1] = 0
    assert made_of_the_mask(seen) is None
