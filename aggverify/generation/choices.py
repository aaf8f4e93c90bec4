"""One of several, as Hypothesis draws it: the first is the simplest one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

# Strategy objects are built once: building them costs more than drawing from them.
integers = lru_cache(maxsize=1024)(st.integers)
sampled = lru_cache(maxsize=256)(st.sampled_from)
_FLAGS = st.booleans()


@lru_cache(maxsize=256)
def of_size(size: int) -> st.SearchStrategy[bytes]:
    """So many bytes."""
    return st.binary(min_size=size, max_size=size)


def pick(draw: st.DrawFn, choices: Sequence[T]) -> T:
    """Draw one of the choices."""
    return choices[draw(integers(0, len(choices) - 1))] if len(choices) > 1 else choices[0]


def flag(draw: st.DrawFn) -> bool:
    """Draw a bit."""
    return draw(_FLAGS)


def order(draw: st.DrawFn, count: int) -> list[int]:
    """Draw the numbers below ``count``, forwards or backwards.

    A switch shrinks, a permutation would not, whatever the number of samples.
    """
    return list(range(count))[:: -1 if flag(draw) else 1]


@lru_cache(maxsize=64)
def mostly_short(longest: int) -> tuple[int, ...]:
    """Half of the time 1 to 3, otherwise up to ``longest``."""
    short = tuple(range(1, min(3, longest) + 1))
    return tuple(sorted(short * (1 + longest // 3) + tuple(range(1, longest + 1))))
