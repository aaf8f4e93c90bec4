"""What is known about a mutant: which bug it is, where it lives, what must be said about it."""

from __future__ import annotations

from dataclasses import dataclass

from aggverify.oracles import DEFAULT_POLICY, Policy


@dataclass(frozen=True, slots=True)
class Mutant:
    """A reducer with a bug that really happened, and the verdict it must get.

    ``codes``: the finding must carry one of them; ``bug``: the name of the diagnosis' entry.
    """

    function: str
    number: int
    """Its number in the list of historic bugs."""
    seen: str
    mode: str
    engine: str
    codes: tuple[str, ...]
    bug: str
    convention: str = "native"
    divisor: float | None = None
    claims: tuple[str, ...] = ()
    policy: Policy = DEFAULT_POLICY


@dataclass(frozen=True, slots=True)
class Correct:
    """A right reducer written in an unusual way, which must pass everything."""

    function: str
    why: str
    """What about it might be mistaken for a fault."""
    mode: str
    engine: str
    convention: str = "native"
    divisor: float | None = None
    claims: tuple[str, ...] = ()
    policy: Policy = DEFAULT_POLICY
