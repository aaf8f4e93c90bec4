"""What of its surroundings a reducer's code may ask: other ranks, hash order, environment, threads.

Ranks that are forks of one interpreter agree on all of it; those that a trainer launches need not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dis import get_instructions
from types import CodeType

_NAMES = {
    "other ranks": (
        "all_reduce", "all_gather", "all_gather_object", "all_gather_into_tensor", "all_to_all",
        "all_to_all_single", "barrier", "broadcast", "broadcast_object_list", "gather", "reduce",
        "reduce_scatter", "reduce_scatter_tensor", "scatter", "send", "recv",
        "get_rank", "get_world_size",
    ),
    "hash order": ("set", "frozenset", "hash", "id"),
    "its environment": ("environ", "getenv", "getpid", "gethostname", "argv"),
    "threads": ("get_num_threads", "cpu_count", "sched_getaffinity"),
}  # fmt: skip
_SETS = {"BUILD_SET", "SET_ADD", "SET_UPDATE"}
"""Instructions that make a set without naming its type."""


def environment_uses(codes: Iterable[CodeType]) -> list[str]:
    """Return what these codes ask, each once."""
    found = set(_uses(codes))
    return [what for what in _NAMES if what in found]


def _uses(codes: Iterable[CodeType]) -> Iterator[str]:
    for code in codes:
        names = {*code.co_names}
        yield from (what for what, some in _NAMES.items() if names.intersection(some))
        made = any(instruction.opname in _SETS for instruction in get_instructions(code))
        if made or any(isinstance(const, frozenset) for const in code.co_consts):
            yield "hash order"
