"""Handlers for the pool's tests; imported in template and rank processes only."""

from . import endings, forging, resources, state
from .base import Echo, Play
from .collectives import Skipper
from .kinds import (
    ActsWhenMade,
    FailsAtFirst,
    FailsInRanks,
    FailsToStart,
    LeavesNativeThread,
    OwnWork,
    Prepares,
    StartsAsleep,
    StartsPolling,
    StartsThread,
    Together,
)

__all__ = [
    "ActsWhenMade",
    "Echo",
    "FailsAtFirst",
    "FailsInRanks",
    "FailsToStart",
    "LeavesNativeThread",
    "OwnWork",
    "Play",
    "Prepares",
    "Skipper",
    "StartsAsleep",
    "StartsPolling",
    "StartsThread",
    "Together",
    "endings",
    "forging",
    "resources",
    "state",
]
