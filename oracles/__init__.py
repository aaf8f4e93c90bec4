"""The truth: exact step scalars and token weights of every aggregation mode."""

from __future__ import annotations

from .errors import OracleError
from .evaluate import scalar, scalars, weights
from .modes import FAMILIES, MODES, Mode, mode
from .policy import DEFAULT_POLICY, Policy
from .second_road import scalar_mp
from .step import Sample, Step

__all__ = [
    "DEFAULT_POLICY",
    "FAMILIES",
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
