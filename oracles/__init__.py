"""The truth: exact step scalars and token weights of every aggregation mode."""

from __future__ import annotations

from oracles.errors import OracleError
from oracles.evaluate import scalar, scalars, weights
from oracles.modes import MODES, Mode, mode
from oracles.policy import DEFAULT_POLICY, Policy
from oracles.second_road import scalar_mp
from oracles.step import Sample, Step

__all__ = [
    "DEFAULT_POLICY",
    "MODES",
    "Mode",
    "OracleError",
    "Policy",
    "Sample",
    "Step",
    "mode",
    "scalar",
    "scalar_mp",
    "scalars",
    "weights",
]
