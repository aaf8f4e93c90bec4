"""Weights that are right for another reading of the policy, or for another mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import numpy as np

from aggverify import oracles
from aggverify.diagnosis.observation import Array, ObservedSign, WeightObservation, close
from aggverify.execution.subject import Subject
from aggverify.oracles import MODES, OracleError, Policy


def other_reading(
    subject: Subject, observations: Sequence[WeightObservation]
) -> ObservedSign | None:
    """Return the one policy field whose other value explains every observation."""
    if subject.mode is None or subject.oracle or not observations:
        return None
    for name, policy in _neighbours(subject.policy):
        if _explains(subject, subject.mode, policy, observations):
            value, declared = str(getattr(policy, name)), getattr(subject.policy, name)
            words = f"{name} = {value!r} (declared: {declared!r})"
            return ObservedSign(f"{name}={value}", f"the mode under another reading: {words}")
    return None


def other_mode(subject: Subject, observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Return the other mode (without a divisor) whose weights all observations have."""
    if subject.mode is None or not observations or _compares(subject.mode):
        return None
    for name, mode in MODES.items():
        is_other = name != subject.mode and not mode.needs_divisor
        if is_other and _explains(subject, name, subject.policy, observations):
            return ObservedSign(f"weights of {name}", f"the weights of {name}")
    return None


def _neighbours(policy: Policy) -> Iterator[tuple[str, Policy]]:
    hints = get_type_hints(Policy)
    for field in fields(policy):
        for value in get_args(hints[field.name]):
            if isinstance(value, str) and value != getattr(policy, field.name):
                reading: dict[str, Any] = {field.name: value}
                try:
                    yield field.name, replace(policy, **reading)
                except OracleError:
                    continue  # a reading that needs a number that is not declared


def _explains(
    subject: Subject, mode: str, policy: Policy, observations: Sequence[WeightObservation]
) -> bool:
    """Right in every observation, and not what was declared in at least one."""
    differs = False
    for o in observations:
        weights = _weights(subject, mode, policy, o)
        if weights is None or not close(o.observed, weights):
            return False
        differs |= o.expected is not None and not close(weights, o.exact)
    return differs


def _weights(subject: Subject, mode: str, policy: Policy, o: WeightObservation) -> Array | None:
    divisor = subject.divisor if oracles.mode(mode).needs_divisor else None
    try:
        weights = oracles.weights(mode, o.case.step, divisor=divisor, policy=policy)
    except OracleError:
        return None
    found = np.array([float(w) for w in weights])
    return np.abs(found) if _compares(mode) else found


def exchanged(subject: Subject, observations: Sequence[WeightObservation]) -> ObservedSign | None:
    """Whether the two rollouts of every pair stand in each other's place."""
    if subject.mode is None or not _compares(subject.mode):
        return None
    if all(o.expected is not None and close(-o.observed, o.exact) for o in observations):
        return ObservedSign("exchanged-pairs", "chosen and rejected are exchanged")
    return None


def _compares(mode: str) -> bool:
    """Whether the mode compares rollouts: observations of its weights are ``upright``."""
    return oracles.mode(mode).group_size is not None
