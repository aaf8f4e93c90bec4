"""The same seed draws the same in every process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers

_INSTEAD: dict[str, Any] = {}
"""Empty ones, for the constants that Hypothesis collects from modules and for its cache of them."""
if hasattr(providers, "_get_local_constants"):  # releases before collect none
    _INSTEAD["_get_local_constants"] = vars(providers)["Constants"]
    _INSTEAD["CONSTANTS_CACHE"] = type(providers.CONSTANTS_CACHE)(1024)


@contextmanager
def deterministic_draws() -> Iterator[None]:
    """Draw without the numbers that happen to stand in modules of this process.

    Now and then Hypothesis draws a constant of a loaded module that is no installed package's. So
    cases would be others in an editable installation, and among a person's tests.
    """
    usual = {name: getattr(providers, name) for name in _INSTEAD}
    vars(providers).update(_INSTEAD)
    try:
        yield
    finally:
        vars(providers).update(usual)
