"""Functions that reduce no losses and are judged call by call: which must be refused, which not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from aggverify.conventions.base import Site


@dataclass(frozen=True, slots=True)
class JudgedCall:
    """One call, made in a rank. ``make`` returns what is wrong with what came of it, or None."""

    name: str
    sentence: str
    refused: bool
    """Whether it must raise."""
    make: Callable[[Callable[..., Any], Site], str | None]


@runtime_checkable
class PerCallConvention(Protocol):
    """A convention of such functions."""

    @property
    def name(self) -> str: ...

    @property
    def ranks(self) -> int:
        """Of the largest world that they are made in; what must be refused is made on one rank."""

    @property
    def calls(self) -> Iterable[JudgedCall]: ...
