"""Acts that leave out, add or alter collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from .base import Answer, Play, act


@act
def extra(play: Play, job: dict[str, Any]) -> None:
    dist.all_reduce(torch.ones(1))


@act
def extra_async(play: Play, job: dict[str, Any]) -> None:
    play.work = dist.all_reduce(torch.ones(1), async_op=True)  # type: ignore[attr-defined]


@act
def wait_async(play: Play, job: dict[str, Any]) -> None:
    work = dist.all_reduce(torch.ones(3), async_op=True)
    assert work is not None
    work.wait()


class SkipError(Exception):
    """Makes ``Skipper`` answer without its collective."""


@act
def skip(play: Play, job: dict[str, Any]) -> None:
    raise SkipError


class Skipper(Play):
    """Like Play, but the act ``skip`` leaves out the reduction."""

    def __call__(self, job: dict[str, Any]) -> Answer:
        try:
            return super().__call__(job)
        except SkipError:
            return {"sum": 0.0}, b""


def _other(play: Play, job: dict[str, Any], mine: Callable[[], Any], others: Any) -> None:
    (mine if play.rank == job["odd"] else others)()


@act
def other_length(play: Play, job: dict[str, Any]) -> None:
    small, large = job["lengths"]
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(small)),
        lambda: dist.all_reduce(torch.ones(large)),
    )  # fmt: skip


@act
def other_dtype(play: Play, job: dict[str, Any]) -> None:
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(4, dtype=torch.int32)),
        lambda: dist.all_reduce(torch.ones(4)),
    )  # fmt: skip


@act
def other_op(play: Play, job: dict[str, Any]) -> None:
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(4), op=dist.ReduceOp.MAX),
        lambda: dist.all_reduce(torch.ones(4)),
    )  # fmt: skip


@act
def other_order(play: Play, job: dict[str, Any]) -> None:
    def one() -> None:
        dist.all_reduce(torch.ones(4))
        dist.broadcast(torch.ones(2), src=0)

    def two() -> None:
        dist.broadcast(torch.ones(2), src=0)
        dist.all_reduce(torch.ones(4))

    _other(play, job, one, two)


@act
def other_group(play: Play, job: dict[str, Any]) -> None:
    pair = dist.new_group([0, 1])
    _other(
        play, job, lambda: dist.all_reduce(torch.ones(1), group=pair),
        lambda: dist.all_reduce(torch.ones(1)),
    )  # fmt: skip


@act
def alone_new_group(play: Play, job: dict[str, Any]) -> None:
    dist.new_group([0, 1])


@act
def sub_groups(play: Play, job: dict[str, Any]) -> dict[str, Any]:
    # Ranks of different groups legitimately issue different collectives.
    group, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    for _ in range(1 + play.rank // 2):
        dist.all_reduce(torch.ones(1), group=group)
    objects: list[Any] = [None, None]
    dist.all_gather_object(objects, play.rank, group=group)
    return {"objects": objects}


@act
def many_groups(play: Play, job: dict[str, Any]) -> None:
    for _ in range(job["groups"]):
        dist.all_reduce(torch.ones(1), group=dist.new_group([0, 1]))


@act
def many_collectives(play: Play, job: dict[str, Any]) -> None:
    for i in range(300):
        odd = play.rank == job.get("odd") and i == 250
        dist.all_reduce(torch.ones(2 if odd else 1))


@act
def unwrapped(play: Play, job: dict[str, Any]) -> None:
    # Around torch.distributed's functions: only the backend's own count sees it.
    world: Any = dist.group.WORLD
    play.work = world.allreduce([torch.ones(1)])  # type: ignore[attr-defined]


@act
def destroy_group(play: Play, job: dict[str, Any]) -> None:
    dist.destroy_process_group()
