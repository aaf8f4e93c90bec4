"""The same mode under another reading of the policy: said as that, never as plain wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import numpy as np

import oracles
from aggverify.diagnosis.forms import Observation
from aggverify.subject import Subject
from oracles import OracleError, Policy

_TOLERANCE = 1e-6


def other_reading(subject: Subject, observations: Sequence[Observation]) -> str | None:
    """The one policy field whose other value explains every observation, as ``field = value``."""
    if subject.mode is None or subject.oracle or not observations:
        return None
    for name, policy in _neighbours(subject.policy):
        if all(_explains(subject, policy, o) for o in observations):
            return (
                f"{name} = {getattr(policy, name)!r} (declared: {getattr(subject.policy, name)!r})"
            )
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
                    continue  # a reading that needs a number nobody declared


def _explains(subject: Subject, policy: Policy, observation: Observation) -> bool:
    assert subject.mode is not None
    try:
        weights = oracles.weights(
            subject.mode, observation.case.step, divisor=subject.divisor, policy=policy
        )
    except OracleError:
        return False
    exact = np.array([float(w) for w in weights])
    return bool((np.abs(observation.observed - exact) <= _TOLERANCE * np.abs(exact)).all())
