"""The same seed draws the same in every process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis.internal.conjecture import providers

_INSTEAD: dict[str, Any] = {}
"""Of the constants that Hypothesis collects, and of what it has made of them."""
if hasattr(providers, "_get_local_constants"):  # releases before collect none
    _INSTEAD["_get_local_constants"] = vars(providers)["Constants"]
    _INSTEAD["CONSTANTS_CACHE"] = type(providers.CONSTANTS_CACHE)(1024)


@contextmanager
def deterministic_draws() -> Iterator[None]:
    """Draw without the numbers that happen to stand in modules of this process.

    Now and then Hypothesis draws one out of a module that is no installed package's: in an editable
    installation, and among a person's tests, the cases would be others.
    """
    usual = {name: getattr(providers, name) for name in _INSTEAD}
    vars(providers).update(_INSTEAD)
    try:
        yield
    finally:
        vars(providers).update(usual)
