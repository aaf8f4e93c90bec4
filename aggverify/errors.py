"""What can go wrong before a verdict: bad input from the person, or a candidate we cannot judge."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AggverifyError(Exception):
    """Base of every error this package raises on purpose; its text is meant for the person."""


class InputError(AggverifyError, ValueError):
    """A value from the person (argument, file, case) that cannot be used; the text shows it."""


class NotClaimable(InputError):
    """A convention × engine × mode cell that cannot be right, whatever the reducer computes."""


class CandidateError(AggverifyError):
    """The candidate could not be found, read or imported."""


class NotJudged(AggverifyError):
    """Something that is not the candidate's doing kept a check from being judged."""


class UnknownVersion(NotJudged):
    """A convention does not know this version of what it calls; the text names what it lacks."""


class NoReducer(CandidateError):
    """Nothing that a convention can call; ``adapter`` is a file that makes it so, or empty."""

    def __init__(self, text: str, adapter: str = "") -> None:
        super().__init__(text)
        self.adapter = adapter


def shown(value: object, most: int = 200) -> str:
    """Return the value as it would be written, as far as that is possible and worth reading."""
    try:
        text = repr(value)
    except Exception:  # an integer of too many digits, or an object's own __repr__
        return f"something of type {type(value).__name__} that cannot be written out"
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def unknown(
    what: str, given: object, accepted: Iterable[str], *, listed_by: str = ""
) -> InputError:
    """Error for a name outside a closed set, with the nearest accepted one, and all of them.

    ``listed_by``: the command that lists them, where they are too many for a sentence.
    """
    names = list(accepted)
    close = difflib.get_close_matches(shown(given, 80).strip("'"), names, n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    every = f"all {len(names)}: {listed_by}" if listed_by else f"accepted: {', '.join(names)}"
    return InputError(f"unknown {what} {shown(given)}{hint} ({every})")
