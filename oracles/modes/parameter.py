"""``name(parameter)``: how a member of a family is written."""

from __future__ import annotations

import re
from fractions import Fraction

from ..errors import OracleError

_MEMBER = re.compile(r"(\w+)(?:\((-?\d{1,9}(?:\.\d{1,9}|/\d{1,9})?)\))?")


def member_of(name: object) -> tuple[str, Fraction | None]:
    """Return the family and its parameter, None where there is none.

    "" for what is not written so.
    """
    match = _MEMBER.fullmatch(str(name))
    if match is None:
        return "", None
    try:
        return match[1], None if match[2] is None else Fraction(match[2])
    except ZeroDivisionError:
        raise OracleError(f"the parameter of a mode must be a number, got {name!r}") from None
