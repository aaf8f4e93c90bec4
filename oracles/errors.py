"""The one error the oracles raise."""

from __future__ import annotations


class OracleError(ValueError):
    """A step, mode, divisor or policy that has no exact answer; the text shows the value."""
