"""``constant``: a fixed divisor instead of a count."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..policy import Policy
from ..step import Step
from .base import Mode, counts, unit_tokens
from .formula import Rows, by_rollout, counted, loss_sum


def sample_weights(step: Step, policy: Policy, divisor: Fraction) -> list[Fraction]:
    """Exact weight of an unmasked token, per sample."""
    number = step.num_rollouts
    if policy.constant_count == "one":
        number = 1
    elif policy.constant_count == "valid_rollouts":
        totals = unit_tokens(counts(step, policy), step.rollouts)
        number = max(sum(total > 0 for total in totals), 1)
    return [1 / (divisor * number)] * len(step.samples)


def scalar_mp(rows: Rows, policy: Policy, divisor: Any) -> Any:
    """Return the formula itself, in mpmath."""
    match policy.constant_count:
        case "rollouts":
            number = len(by_rollout(rows))
        case "valid_rollouts":
            number = max(len(counted(by_rollout(rows), "exclude")), 1)
        case _:  # "one"
            number = 1
    return loss_sum(rows) / (divisor * number)


MODE = Mode(
    name="constant",
    formula="sum l*m / (L * N)",
    citation="Dr.GRPO, arXiv 2503.20783 listing 1",
    sample_weights=sample_weights,
    scalar_mp=scalar_mp,
    asks=("denominators", "constant_count"),
    needs_divisor=True,
    names={
        "slime": ("constant",),
        "miles": ("constant",),
        "SkyRL": ("seq_mean_token_sum_norm",),
        "verl": ("seq-mean-token-sum-norm",),
        "TRL": ("dr_grpo",),
        "ROLL": ("seq-mean-token-sum-norm",),
    },
    remarks={"slime": "with --pg-loss-divisor", "miles": "with --pg-loss-divisor"},
)
