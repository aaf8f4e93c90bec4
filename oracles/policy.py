"""What no paper settles: declared, printed readings, each with a default (semantics.md)."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from oracles.errors import OracleError


@dataclass(frozen=True)
class Policy:
    """One value per open question. Every reading was seen in a released framework."""

    empty_units: Literal["count", "exclude"] = "count"
    """Does a fully masked rollout or prompt group count in N or P? (verl excludes on one path.)"""
    phantom_tokens: Literal["no", "yes"] = "no"
    """Does a fully masked sample add one token to the step's count? (slime: sum of max(M_i, 1).)"""
    denominators: Literal["original", "post_rejection"] = "original"
    """Which mask do denominators use after rejection? (slime 2025 and verl: the later one.)"""
    several_samples: Literal[
        "rollout", "sample", "samples_over_rollouts", "mean_within_rollout"
    ] = "rollout"
    """What does sample_mean average when a rollout has several samples?"""
    constant_count: Literal["rollouts", "one", "valid_rollouts"] = "rollouts"
    """What multiplies L in constant? (verl changed it five times in three months.)"""

    def __post_init__(self) -> None:
        hints = get_type_hints(Policy)
        for field in fields(self):
            value, accepted = getattr(self, field.name), get_args(hints[field.name])
            if value not in accepted:
                close = difflib.get_close_matches(str(value), accepted, n=1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise OracleError(
                    f"policy {field.name} must be one of {', '.join(accepted)}, got {value!r}{hint}"
                )

    def describe(self) -> list[str]:
        """One ``question: reading`` line per field."""
        return [f"{f.name}: {getattr(self, f.name)}" for f in fields(self)]


DEFAULT_POLICY = Policy()
