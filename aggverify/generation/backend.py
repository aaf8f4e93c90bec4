"""A backend of Hypothesis with which the same seed draws the same in every process.

Hypothesis' own now and then draws a number that stands in a module of the person's: in an editable
installation, and among a person's tests, the cases would be others. Shrinking stays Hypothesis'.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import Any, NoReturn

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

BACKEND = "aggverify"
AVAILABLE_PROVIDERS[BACKEND] = f"{__name__}.SeededProvider"
_SEED: ContextVar[int | str] = ContextVar("seed", default=0)


@contextmanager
def seeded(seed: int | str) -> Iterator[None]:
    """Draw with this seed in what is run with ``settings(backend=BACKEND)``."""
    token = _SEED.set(seed)
    try:
        yield
    finally:
        _SEED.reset(token)


class SeededProvider(PrimitiveProvider):
    """Draws from one seeded generator: integers with bounds, booleans and bytes.

    Cases are made of nothing else.
    """

    lifetime = "test_function"

    def __init__(self, conjecturedata: Any, /) -> None:
        super().__init__(conjecturedata)
        self._random = Random(_SEED.get())

    def draw_boolean(self, p: float = 0.5) -> bool:
        """Draw True with probability ``p``."""
        return self._random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """Draw any integer between the bounds, both included.

        ``weights``: how likely some of them are by themselves, such as the bounds.
        """
        if min_value is None or max_value is None:
            self._unknown("an integer without bounds")
        left = self._random.random() if weights else 1.0
        for value, weight in (weights or {}).items():
            if left < weight:
                return value
            left -= weight
        return self._random.randint(min_value, max_value)

    def draw_bytes(self, min_size: int = 0, max_size: int = 0) -> bytes:
        """Draw bytes, as many as any number between the sizes."""
        return self._random.randbytes(self._random.randint(min_size, max_size))

    def draw_float(self, **bounds: Any) -> float:
        """Raise NotImplementedError."""
        self._unknown("a float")

    def draw_string(self, *alphabet: Any, **sizes: Any) -> str:
        """Raise NotImplementedError."""
        self._unknown("a string")

    def _unknown(self, what: str) -> NoReturn:
        raise NotImplementedError(f"backend {BACKEND!r} draws bounded integers, not {what}")
