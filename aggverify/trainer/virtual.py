"""One rank of a world that is not there.

Its process groups have the right size and rank, and no other member.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aggverify.steps.layouts import Layout
from aggverify.trainer.grid import GridCell
from aggverify.world.trace import FUNCTIONAL, NOT_COMPARED, TRACER

_BACKEND = "gloo"
"""What candidates read where they ask: the one that real ranks have here."""


@contextmanager
def as_rank(rank: int, layout: Layout) -> Iterator[GridCell]:
    """For the length of a ``with`` this process is that rank, whatever it asks."""
    from torch._C._distributed_c10d import _register_process_group, _unregister_process_group
    from torch.distributed import distributed_c10d as c10d

    world: Any = c10d._world
    dp_rank, cp_rank = divmod(rank, layout.cp_size)
    same_dp = [dp_rank * layout.cp_size + c for c in range(layout.cp_size)]
    same_cp = [d * layout.cp_size + cp_rank for d in range(layout.dp_size)]
    members = [list(range(layout.world_size)), same_cp, same_dp]
    groups = [_group(each.index(rank), len(each), n) for n, each in enumerate(members)]
    own_group, own_environment = world.default_pg, dict(os.environ)
    place = {"RANK": str(rank), "WORLD_SIZE": str(layout.world_size)}
    place |= {f"LOCAL_{name}": text for name, text in place.items()}
    for group, ranks in zip(groups, members, strict=True):
        world.pg_map[group] = (_BACKEND, None)
        world.pg_names[group] = group.group_name
        world.pg_group_ranks[group] = {each: place for place, each in enumerate(ranks)}
        _register_process_group(group.group_name, group)
    try:
        world.default_pg = groups[0]
        os.environ.update(place)
        TRACER.alone = True
        with _no_collectives():
            yield GridCell(dp_rank, cp_rank, groups[1], groups[2])
    finally:
        TRACER.alone = False
        world.default_pg = own_group
        os.environ.update({name: own_environment[name] for name in place})
        for group in groups:
            for known in (world.pg_map, world.pg_names, world.pg_group_ranks):
                known.pop(group, None)
            _unregister_process_group(group.group_name)


_OPERATORS = frozenset({"c10d", "c10d_functional", "symm_mem", *FUNCTIONAL})
"""Namespaces of torch's operators that talk to other ranks."""


def _no_collectives() -> Any:
    """Forbid collectives: every road to one ends in one of torch's operators.

    Also those which the tracer does not see: a method of a group, symmetric memory.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    class NoCollectives(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # to skip it, torch would import it: a second in every rank

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if function.namespace in _OPERATORS:
                TRACER.enter(NOT_COMPARED, function.__name__)
            return function(*args, **(kwargs or {}))

    made: Any = NoCollectives
    return made()


def raised_by_distributed(error: BaseException) -> bool:
    """Whether it comes out of torch.distributed, of which the groups here support only a part."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(_DISTRIBUTED in frame.filename for frame in frames)


_DISTRIBUTED = "/torch/distributed/"


def _group(rank: int, size: int, number: int) -> Any:
    """Return a group whose backend does nothing."""
    import torch
    from torch._C._distributed_c10d import FakeProcessGroup, ProcessGroup

    # Constructed as any class in older versions of torch.
    backend: Any = getattr(FakeProcessGroup, "_create_internal", FakeProcessGroup)(rank, size)
    made: Any = ProcessGroup(rank, size)  # type: ignore[call-arg]
    kind = ProcessGroup.BackendType.CUSTOM
    made._set_default_backend(kind)
    for device in ("cpu", "cuda"):
        made._register_backend(torch.device(device), kind, backend)
    made._set_group_name(f"virtual {number}")
    return made
