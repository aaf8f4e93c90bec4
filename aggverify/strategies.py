"""Hypothesis strategies for a person's own ``@given``: steps, layouts of a step, cases, spaces.

Everything drawn is plain frozen data; the smallest case is one token on one rank.
"""

from __future__ import annotations

from aggverify.generation.space import Space
from aggverify.generation.strategies import cases, layouts, steps, telling_apart

__all__ = ["Space", "cases", "layouts", "steps", "telling_apart"]
