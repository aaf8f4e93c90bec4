"""Numbers published, or obtained by running other people's code, as literals with their source.

Steps are written as ``drawing.step_of`` reads them; losses are one per response token, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

F = Fraction


@dataclass(frozen=True, slots=True)
class Golden:
    """One number of one source."""

    source: str
    step: str
    losses: tuple[float, ...]
    mode: str
    expected: Fraction
    divisor: float | None = None
    policy: dict[str, Any] = field(default_factory=dict)


TOY = ("111; 1; 11; 1111", tuple(range(1, 11)))
_TOY = "toy batch of lengths 3, 1, 2, 4, run through {} on CPU"

SKYRL = ("11 10; 11 11", tuple(range(1, 9)))
_SKYRL = "SkyRL unit tests of apply_loss_reduction_to_advantages_minibatch, advantages 1 to 8"

SKYRL_OLD = ("1; 111; 11; 11", (4, 0, 0, 0, 1, 1, 1, 1))
_SKYRL_OLD = "SkyRL 0.1.0, lengths 1, 3, 2, 2: the true value its micro-batches of one row missed"

TWINKLE = ("1; 111", (-1, 1, 1, 1))
MILES = ("111", (1, 2, 3))
FAN_OUT = "11+111 1111"
_FAN_OUT = "slime's sample denominators, rollouts of 2 + 3 and of 4 tokens: weight of the {} sample"


def _first_of(sample: int) -> tuple[float, ...]:
    """A loss on the first token of one sample of the fan-out step."""
    start = (0, 2, 5)[sample]
    return tuple(float(t == start) for t in range(9))


def _fan_out(reading: str, *weights: Fraction) -> list[Golden]:
    policy = {"several_samples": reading}
    return [
        Golden(_FAN_OUT.format(i), FAN_OUT, _first_of(i), "sample_mean", weight, policy=policy)
        for i, weight in enumerate(weights)
    ]


GOLDEN = (
    Golden(_TOY.format("verl token-mean, TRL dapo"), *TOY, "token_mean", F("5.5")),
    Golden(_TOY.format("verl seq-mean-token-mean, TRL grpo"), *TOY, "sample_mean", F(5)),
    Golden(_TOY.format("verl seq-mean-token-sum"), *TOY, "sequence_sum", F("13.75")),
    Golden(_TOY.format("verl seq-mean-token-sum-norm"), *TOY, "constant", F("3.4375"), 4),
    Golden(_SKYRL, *SKYRL, "token_mean", F(32, 7)),
    Golden(_SKYRL, *SKYRL, "sample_mean", F("4.375")),
    Golden(_SKYRL, *SKYRL, "constant", F(4), 2),
    Golden(_SKYRL + "; their literal", *SKYRL, "prompt_mean", F("4.25")),
    Golden(_SKYRL_OLD, *SKYRL_OLD, "token_mean", F(1)),
    Golden(_SKYRL_OLD, *SKYRL_OLD, "sample_mean", F("1.5")),
    Golden("twinkle #292, whole batch", *TWINKLE, "token_mean", F("0.5")),
    Golden("miles #1328, divisor 4", *MILES, "constant", F("1.5"), 4),
    Golden("miles #1328, default", *MILES, "sample_mean", F(2)),
    Golden("miles #1328, hardcoded divisor", *MILES, "constant", F("0.006"), 1000),
    Golden("Megatron-LM #7513, one valid token", "0010", (9, 9, 1, 9), "token_mean", F(1)),
    *_fan_out("rollout", F(1, 10), F(1, 10), F(1, 8)),
    *_fan_out("sample", F(1, 6), F(1, 9), F(1, 12)),
    *_fan_out("samples_over_rollouts", F(1, 4), F(1, 6), F(1, 8)),
    *_fan_out("mean_within_rollout", F(1, 8), F(1, 12), F(1, 8)),
)
