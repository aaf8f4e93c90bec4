"""What frameworks call the modes: read in both directions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .base import Mode


@dataclass(frozen=True, slots=True)
class Legacy:
    """An aggregation that depends on the layout.

    Frameworks have it, and it has a step scalar only over micro-batches of a declared size.
    """

    name: str
    why: str
    instead: str
    """The mode that one would check to see what it changes."""
    names: Mapping[str, tuple[str, ...]]


LEGACY = Legacy(
    name="token_mean_legacy",
    why="averages over ranks and micro-batches, so it has a step scalar only where each holds as "
    "many samples",
    instead="token_mean",
    names={"SkyRL": ("token_mean_legacy",), "TRL": ("bnpo",)},
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """One mode that a name stands for, and the frameworks that write it so."""

    mode: str
    frameworks: tuple[str, ...] = ()

    def sentence(self, name: str) -> str:
        """``verl's and ROLL's token-mean is token_mean``."""
        whose = " and ".join(f"{framework}'s" for framework in self.frameworks)
        return f"{whose} {name} is {self.mode}".lstrip()


Names = Mapping[str, tuple[Meaning, ...]]
"""Every spelling of every name: the modes it stands for, usually one."""


def names_of(modes: Iterable[Mode | Legacy]) -> Names:
    """All that frameworks write, and the same with hyphens and underscores exchanged."""
    found: dict[str, dict[str, list[str]]] = {}
    for mode in modes:
        for framework, names in mode.names.items():
            for name in names:
                for spelling in spellings(name):
                    whose = found.setdefault(spelling, {}).setdefault(mode.name, [])
                    whose += [framework] if spelling == name and framework not in whose else []
    return {
        name: tuple(Meaning(mode, tuple(whose)) for mode, whose in meanings.items())
        for name, meanings in found.items()
    }


def spellings(name: str) -> tuple[str, ...]:
    """Return the name as it is, and as people write it from memory."""
    if not name.replace("-", "").isidentifier() or name.startswith("--"):
        return (name,)
    return tuple(dict.fromkeys((name, name.replace("-", "_"), name.replace("_", "-"))))
