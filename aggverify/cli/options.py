"""What several commands read from their options in the same way."""

from __future__ import annotations

from aggverify.errors import InputError


def policy_readings(given: tuple[str, ...]) -> dict[str, str]:
    """``QUESTION=READING`` options as a mapping; raises InputError on anything else."""
    found = {}
    for text in given:
        question, equals, reading = text.partition("=")
        if not equals:
            raise InputError(f"--policy takes QUESTION=READING, got {text!r}")
        found[question] = reading
    return found
