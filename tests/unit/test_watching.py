"""What a candidate changes in its arguments is noticed; what it may do is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from aggverify.trainer.argument_changes import ArgumentWatch


@dataclass(frozen=True)
class Batch:
    masks: list[torch.Tensor]
    counts: list[int]
    names: dict[str, list[int]]
    bounds: list[tuple[int, int]]


def batch() -> Batch:
    return Batch([torch.tensor([1, 0])], [3, 4], {"a": [1]}, [(0, 1)])


def changes(candidate: Callable[[torch.Tensor, Batch], Any]) -> list[str]:
    watch = ArgumentWatch()
    losses = torch.tensor([1.0, float("nan")], requires_grad=True) * 1
    watch.function(candidate)(losses, batch())
    return watch.changes()


@pytest.mark.parametrize(
    ("candidate", "told"),
    [
        (lambda x, b: x.mul_(2), "argument 1: element 0 was 1.0, is 2.0"),
        (lambda x, b: x.nan_to_num_(), "argument 1: element 1 was nan, is 0.0"),
        (lambda x, b: b.masks[0].zero_(), "masks[0]: element 0 was 1, is 0"),
        (lambda x, b: b.masks.append(1), "masks: was"),
        (lambda x, b: b.counts.sort(reverse=True), "counts: was [3, 4], is [4, 3]"),
        (lambda x, b: b.names["a"].clear(), "names['a']: was [1], is []"),
        (lambda x, b: b.names.pop("a"), "names: was {'a': [1]}, is {}"),
        (lambda x, b: b.bounds.__setitem__(0, (0, 2)), "bounds: was [(0, 1)], is [(0, 2)]"),
        (lambda x, b: b.masks[0].resize_(1), "masks[0]: was torch.int64[2], is torch.int64[1]"),
    ],
)
def test_a_change_is_told(candidate: Callable[..., Any], told: str) -> None:
    assert any(text.startswith(told) for text in changes(candidate)), changes(candidate)


@pytest.mark.parametrize(
    "candidate",
    [
        lambda x, b: x * 2,
        lambda x, b: x.clone().mul_(2),
        lambda x, b: x.mul_(1),
        lambda x, b: sorted(b.counts, reverse=True),
        lambda x, b: b.counts.__setitem__(0, 3),
        lambda x, b: b.bounds.__setitem__(0, (0, 1)),
        lambda x, b: b.masks[0].neg().neg_(),
    ],
)
def test_nothing_is_told_of_what_leaves_values_alone(candidate: Callable[..., Any]) -> None:
    assert changes(candidate) == []


def test_a_returned_reducer_is_watched_with_the_arguments_of_its_factory() -> None:
    watch = ArgumentWatch()
    masks = [torch.ones(2)]

    def factory(given: list[torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
        def reduce(x: torch.Tensor) -> torch.Tensor:
            given[0].mul_(3)
            return x.mul_(2).sum()

        return reduce

    watch.function(factory)(masks)(torch.ones(2))
    assert watch.changes() == [
        "argument 1[0]: element 0 was 1.0, is 3.0",
        "the returned function's argument 1: element 0 was 1.0, is 2.0",
    ]


def test_functions_of_a_module_are_watched_and_its_values_are_not() -> None:
    watch = ArgumentWatch()
    watch.module(torch).relu_(torch.tensor([-1.0]))
    assert watch.changes() == ["relu_'s argument 1: element 0 was -1.0, is 0.0"]
    assert watch.module(torch).pi == torch.pi
