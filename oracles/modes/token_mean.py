"""``token_mean``: mean over all unmasked tokens of the step."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..policy import Policy
from ..step import Step
from .base import Mode, counts
from .formula import Rows, loss_sum


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    tokens = counts(step, policy)
    phantoms = tokens.count(0) if policy.phantom_tokens == "yes" else 0
    return [Fraction(1, max(sum(tokens) + phantoms, 1))] * len(tokens)


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    least = 1 if policy.phantom_tokens == "yes" else 0
    return loss_sum(rows) / max(sum(max(row.tokens, least) for row in rows), 1)


MODE = Mode(
    name="token_mean",
    formula="sum l*m / max(M_step, 1)",
    citation="DAPO's released code (it divides by the tokens of the batch)",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("phantom_tokens", "denominators"),
    names={
        "slime": ("token_mean", "--calculate-per-token-loss"),
        "miles": ("token_mean", "--calculate-per-token-loss"),
        "SkyRL": ("token_mean",),
        "verl": ("token-mean",),
        "TRL": ("dapo",),
        "OpenRLHF": ("token_level_loss=True",),
        "NeMo-RL": ("token_level_loss: true",),
        "ROLL": ("token-mean",),
        "Megatron-LM": ("--calculate-per-token-loss",),
    },
    remarks={"AReaL": "the only mode"},
    caveats={"dapo": "the DAPO paper prints prompt_mean"},
)
