"""The codes there are: the tool's own, and those that a person adds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType

from aggverify.codes.base import Code
from aggverify.codes.catalogue import CATALOGUE
from aggverify.errors import InputError, unknown

_known: dict[str, Code] = {name: entry.code for name, entry in CATALOGUE.items()}
CODES: Mapping[str, Code] = MappingProxyType(_known)
"""Every code by its name, in order; a view that shows what is registered later."""
OWN = re.compile(r"AGV9\d\d")
"""The names a person's own codes have: the tool itself never uses them."""


def code(name: str) -> Code:
    """Return the code of that name, in any case, or of that number.

    Raises InputError with the nearest.
    """
    name = name.strip().upper()
    found = _known.get(f"AGV{name}" if name.isdecimal() else name)
    if found is None:
        raise unknown("code", name, _known, listed_by="aggverify explain")
    return found


def code_of_failure(kind: str, breach: str = "") -> Code:
    """Return the code of a failure: of its kind, or of the breach of contract it reports.

    ``breach``: a name that may have a detail after a colon.
    """
    failures = {known.failure: known for known in _known.values()}
    if breach:
        return failures.get(breach.partition(":")[0], failures["breach"])
    return failures[kind]


def register(*codes: Code) -> None:
    """Add a person's own codes; raises InputError for one out of range or in use."""
    for new in codes:
        if not OWN.fullmatch(new.code):
            raise InputError(f"code {new.code!r}: your own are called AGV900 to AGV999")
        if _known.get(new.code, new) != new:
            raise InputError(f"code {new.code} is in use already: {_known[new.code].title!r}")
        _known[new.code] = new


@contextmanager
def registered(*codes: Code) -> Iterator[None]:
    """Those codes for the length of a ``with``."""
    before = set(_known)
    register(*codes)
    try:
        yield
    finally:
        for new in codes:
            if new.code not in before:
                del _known[new.code]
