"""What a launch decides is only tried where a reducer's code asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from aggverify.checks import check
from aggverify.checks.launched import NAME
from aggverify.execution.budget import Budget
from aggverify.trainer.constants import codes
from aggverify.trainer.environment_uses import environment_uses
from tests.unit.test_checks import PLAIN

NAMES = ("loss", "tokens")


def _owner(name: str) -> int:
    return hash(name) % 2


def owned(losses: Any, batch: Any) -> Any:
    return sum(_owner(name) for name in NAMES)


def in_set_order(losses: Any, batch: Any) -> Any:
    return [batch[name] for name in {*NAMES}]


def in_constant_set_order(losses: Any, batch: Any) -> Any:
    return [batch[name] for name in {"loss", "tokens"}]


def over_ranks(losses: Any, batch: Any) -> Any:
    import torch.distributed as dist

    dist.all_reduce(losses)
    return losses.sum() * float(os.environ["WORLD_SIZE"])


def plain(losses: Any, batch: Any) -> Any:
    return losses.sum() / max(batch.num_tokens, len({}))


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (owned, ["hash order"]),
        (in_set_order, ["hash order"]),
        (in_constant_set_order, ["hash order"]),
        (over_ranks, ["other ranks", "its environment"]),
        (plain, []),
    ],
)
def test_what_code_asks_is_read_off_it_and_what_it_calls(
    function: Callable[..., Any], told: list[str]
) -> None:
    assert environment_uses(codes(function)) == told


def test_ranks_are_launched_for_code_that_asks_or_in_a_thorough_run() -> None:
    about = check(NAME)
    assert about.space(PLAIN) is None
    asks = PLAIN.knowing(surroundings=("hash order",))
    space = about.space(asks)
    assert space is not None
    assert about.space(PLAIN.claiming(budget=Budget("thorough"))) is not None
    assert about.space(asks.claiming(max_world=1)) is None
    assert about.only is not None
    given = [case.layout for case in about.only(asks)]
    sizes = {(each.dp_size, each.cp_size, each.num_microbatches) for each in given}
    # Two ranks, each of which imports torch, are split in either way.
    assert sizes == {(2, 1, 1), (2, 1, 2), (1, 2, 1), (1, 2, 2)}
    assert all(case in space for case in about.only(asks))
