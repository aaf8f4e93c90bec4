"""``token_sum``: plain sum; normalisation lives in the advantages."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..policy import Policy
from ..step import Step
from .base import Mode
from .formula import Rows, loss_sum


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    return [Fraction(1)] * len(step.samples)


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    return loss_sum(rows)


MODE = Mode(
    name="token_sum",
    formula="sum l*m",
    citation="Tinker: losses are summed, the person normalises through advantages or weights",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    names={"verl": ("token-sum",)},
    remarks={
        "SkyRL": "masked sum of scaled advantages",
        "Tinker": "the only mode",
        "prime-rl": "what its per-sample loss functions return",
        "Megatron-LM": "what loss_func returns",
    },
)
