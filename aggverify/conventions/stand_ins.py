"""What a convention hands to a framework in the place of its own objects.

What is read of one and is not in it shows that the convention does not know this version
(``trainer/blame.py``).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class StandIn(SimpleNamespace):
    """An object with these attributes, and no others."""


class StandInDict(dict[str, Any]):
    """A mapping with these keys, and no others."""

    def __missing__(self, key: str) -> Any:
        raise MissingKey(key)


class MissingKey(KeyError):
    """Read of a stand-in, which does not have it."""
