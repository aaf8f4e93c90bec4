"""The enumeration of small steps leaves nothing out and repeats nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest

from aggverify.checks.exhaustive import CHECK, boxes, established, every
from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.enumeration import Box, every_case
from aggverify.oracles import Sample, Step
from aggverify.steps.case import Case

SUBJECT = Subject.of(Claim("f.py", "reduce", "native", "sum", "token_mean"))


def key(masks: list[bytes], groups: list[int], rollouts: list[int], cells: object) -> object:
    """What is left of a case when order and names are forgotten."""
    count = len(masks)
    best: object = None
    for order in permutations(range(count)):
        place = {i: p for p, i in enumerate(order)}
        names: list[dict[int, int]] = [{}, {}]
        rows = [
            (
                masks[i],
                names[0].setdefault(groups[i], len(names[0])),
                names[1].setdefault(rollouts[i], len(names[1])),
            )
            for i in order
        ]
        ranks = sorted(
            sorted(sorted(place[i] for i in cell) for cell in rank)
            for rank in cells  # type: ignore[attr-defined]
        )
        found = (rows, ranks)
        best = found if best is None or found < best else best  # type: ignore[operator]
    return repr(best)


def of_case(case: Case) -> object:
    samples, layout = case.step.samples, case.layout
    labels = [s.group for s in samples], [s.rollout for s in samples]
    whole = key([s.loss_mask for s in samples], *labels, layout.micro_batches)
    return whole, layout.cp_size, layout.cp_kind


def everything(samples: int, tokens: int, ranks: int, fan_out: bool) -> Iterator[object]:
    """Every class, by going through all labellings and all assignments of samples to cells."""
    masks = [bytes(b) for n in range(1, tokens + 1) for b in product((0, 1), repeat=n)]
    for count in range(1, samples + 1):
        for chosen, groups, rollouts in product(
            product(masks, repeat=count),
            product(range(count), repeat=count),
            product(range(count), repeat=count),
        ):
            pairs = set(zip(groups, rollouts, strict=True))
            if len(pairs) != len(set(rollouts)) or (not fan_out and len(pairs) < count):
                continue
            for dp_size, k in product(range(1, ranks + 1), range(1, count + 1)):
                for where in product(range(dp_size * k), repeat=count):
                    if len(set(where)) < dp_size * k:
                        continue
                    cells = [
                        [[i for i in range(count) if where[i] == d * k + j] for j in range(k)]
                        for d in range(dp_size)
                    ]
                    for cp_size in range(1, ranks // dp_size + 1):
                        whole = key(list(chosen), list(groups), list(rollouts), cells)
                        yield whole, cp_size, "zigzag"


@pytest.mark.parametrize(
    ("samples", "tokens", "ranks", "fan_out"),
    [
        (2, 2, 2, True),
        pytest.param(3, 1, 3, False, marks=pytest.mark.thorough),
        (3, 1, 1, True),
    ],
)
def test_every_class_is_there_once(samples: int, tokens: int, ranks: int, fan_out: bool) -> None:
    box = Box(samples, tokens, ranks, fan_out=fan_out)
    found = Counter(map(of_case, every_case(box)))
    assert set(found.values()) == {1}
    assert set(found) == set(everything(samples, tokens, ranks, fan_out))


def test_boxes_follow_the_claims_and_are_not_repeated() -> None:
    plain, wide = boxes(SUBJECT)
    assert (plain.samples, plain.tokens, plain.ranks, plain.fan_out) == (3, 3, 4, False)
    assert (wide.tokens, wide.cp_kinds, wide.fan_out) == (
        2,
        ("zigzag", "contiguous", "gathered"),
        True,
    )
    hook = Subject.of(Claim("f.py", "reduce", "slime", "megatron-sample", "sample_mean"))
    assert boxes(hook) == (Box(3, 3, 4),)
    text = established(SUBJECT, 12345)
    assert text.startswith(
        "verified for all 12,345 steps and layouts of up to 3 samples of up to 3 tokens"
    )


def test_a_mistake_on_one_rare_shape_is_found() -> None:
    """Right everywhere but on one fan-out rollout whose last token alone counts, on two ranks."""
    rare = Step((Sample(1, (1, 1), 0, 0), Sample(1, (0, 1), 0, 0)))

    def run(case: Case) -> Execution:
        expected = SUBJECT.expected(case.step)
        assert expected is not None
        weights = np.array([float(w) for w in expected])
        if case.step == rare and case.layout.dp_size == 2:
            weights = weights * 2
        return Execution(case, weights, Fraction(0))

    failures = [
        found
        for case in every(SUBJECT)
        if len(case.step.samples) < 3
        if (found := CHECK.judge(SUBJECT, [run(case.trivial), run(case)])) is not None
        if found.code == "AGV204"
    ]
    assert {(f.case.step, f.case.layout.dp_size) for f in failures} == {(rare, 2)}
