"""What no paper settles: declared, printed readings, each with a default (semantics.md)."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from .errors import OracleError


@dataclass(frozen=True, slots=True)
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
    prompt_count: Literal["present", "rollouts_over_group_size"] = "present"
    """What is P when groups are incomplete: the groups present, or N / G with G = group_size?
    (The latter is what slime and miles pull requests computed: P*G/N times too large.)"""
    constant_count: Literal["rollouts", "one", "valid_rollouts"] = "rollouts"
    """What multiplies L in constant? (verl changed it five times in three months.)"""
    sequence: Literal["sum", "mean"] = "sum"
    """What of a rollout do pairs compare? (DPO's paper: the sum of its tokens; TRL's IPO: their
    mean.)"""
    group_size: int | None = None
    """G, rollouts per prompt; only ``rollouts_over_group_size`` reads it."""

    def __post_init__(self) -> None:
        for name, accepted in READINGS.items():
            value = getattr(self, name)
            if value not in accepted:
                raise OracleError(
                    f"policy {name} must be one of {', '.join(accepted)}, got {value!r:.200}"
                    f"{_did_you_mean(value, accepted)}"
                )
        size = self.group_size
        if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
            raise OracleError(f"policy group_size must be a positive integer, got {size!r:.200}")
        if self.prompt_count == "rollouts_over_group_size" and size is None:
            raise OracleError(
                "policy prompt_count='rollouts_over_group_size' needs group_size, the number of "
                "rollouts per prompt, got None"
            )

    @staticmethod
    def from_text(readings: Mapping[str, str]) -> Policy:
        """Return the policy of ``question -> reading`` as typed by a person; raises OracleError."""
        names = [f.name for f in fields(Policy)]
        values: dict[str, Any] = {}
        for name, reading in readings.items():
            if name not in names:
                raise OracleError(
                    f"unknown policy question {name!r:.200}{_did_you_mean(name, names)} "
                    f"(known: {', '.join(names)})"
                )
            is_number = name == "group_size" and reading.isascii() and reading.isdigit()
            values[name] = int(reading) if is_number else reading
        return Policy(**values)

    def describe(self, questions: Collection[str] | None = None) -> list[str]:
        """One ``question: reading`` line each, for all questions or these; group_size if known."""
        readings = {f.name: getattr(self, f.name) for f in fields(self)}
        return [
            f"{name}: {value}"
            for name, value in readings.items()
            if value is not None and (questions is None or name in questions)
        ]


def _did_you_mean(value: object, accepted: list[str] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(str(value), accepted, n=1)
    return f"; did you mean {close[0]!r:.200}?" if close else ""


QUESTIONS: Mapping[str, str] = {
    "empty_units": "does a fully masked rollout or prompt group count in N or P?",
    "phantom_tokens": "does a fully masked sample add one token to the step's count?",
    "denominators": "which mask do denominators use after tokens were rejected?",
    "several_samples": "what is averaged when a rollout has several samples?",
    "prompt_count": "what is P when prompt groups are incomplete?",
    "constant_count": "what multiplies L?",
    "sequence": "what of a rollout do pairs compare, the sum of its tokens or their mean?",
    "group_size": "how many rollouts does a prompt have?",
}
"""Every question of the policy in words."""

READINGS: Mapping[str, tuple[str, ...]] = {
    name: get_args(hint) for name, hint in get_type_hints(Policy).items() if name != "group_size"
}
"""The accepted readings of each question, the default first; ``group_size`` is a number."""

DEFAULT_POLICY = Policy()
