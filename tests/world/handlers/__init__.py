"""Handlers for the pool's tests; imported in template and rank processes only."""

from . import endings, resources, state
from .base import Echo, Play
from .collectives import Skipper
from .kinds import (
    ActsWhenMade,
    FailsInRanks,
    FailsToStart,
    LeavesNativeThread,
    Prepares,
    StartsThread,
    Together,
)

__all__ = [
    "ActsWhenMade",
    "Echo",
    "FailsInRanks",
    "FailsToStart",
    "LeavesNativeThread",
    "Play",
    "Prepares",
    "Skipper",
    "StartsThread",
    "Together",
    "endings",
    "resources",
    "state",
]
