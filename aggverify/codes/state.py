"""What became of a check: the words that every report uses."""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """One check on one subject. What is not ``OK``, ``FAILED`` or ``HAZARD`` has a reason."""

    OK = "ok"
    FAILED = "failed"
    HAZARD = "hazard"
    """Wrong only where something holds that is not claimed."""
    WAIVED = "waived"
    """Failed, and a person accepts all that was found, with a reason."""
    REFUSED = "refused"
    """Every case of it declined by a clear exception of the reducer's own."""
    NOT_JUDGED = "not judged"
    """Should have been judged and could not be."""
    NOT_CLAIMED = "not claimed"
    LEFT_OUT = "left out"
    """Not applicable to this subject, or is run only when asked for."""

    @property
    def planned(self) -> bool:
        """Whether the check was applicable and claimed."""
        return self not in (State.NOT_CLAIMED, State.LEFT_OUT)

    @property
    def judged(self) -> bool:
        """Whether the check has come to a result."""
        return self in (State.OK, State.FAILED, State.HAZARD, State.WAIVED, State.REFUSED)


class Again(StrEnum):
    """What became of a stored case that was run again on another version of its reducer."""

    FAILS = "fails"
    HAZARD = "is a hazard"
    PASSES = "passes"
    REFUSED = "refused"
    """The reducer declines it, where declining is as good as the right result, or as a whole."""
    NOT_RUN = "not run"
    """No judgement: it could not be run, or the reducer did not get through its steps."""


class Standing(StrEnum):
    """How an entry of a baseline stands, once its case was run again."""

    HOLDS = "still fails"
    EXPIRED = "expired"
    """It still fails, and is accepted no longer."""
    FIXED = "fixed"
    REFUSED = "refused now"
    ANOTHER = "another finding now"
    NOT_RUN = "cannot be run"

    @property
    def stale(self) -> bool:
        """Whether the entry has to go, or to be written anew."""
        return self not in (Standing.HOLDS, Standing.EXPIRED)


class Incomplete(StrEnum):
    """What ended a command before everything that was planned had been judged."""

    INTERRUPTED = "interrupted"
    OUT_OF_TIME = "out of time"
    STOPPED = "stopped by an error"
