"""Findings that a person accepts, each with a reason: what ``--accept`` says."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from aggverify.codes import Effect, code
from aggverify.codes.identity import Identity
from aggverify.errors import InputError

FORM = r"(AGVW?[0-9]+)(?::([^=\s]+))?=([\s\S]*\S[\s\S]*)"
"""A regular expression for one."""


@dataclass(frozen=True, slots=True)
class Waiver:
    """``case``: the id of one stored case, or the signature of findings alike; None for any."""

    code: str
    case: str | None
    reason: str
    identity: Identity | None = None
    """Of one from a baseline: any finding that is the same."""
    owner: str | None = None
    expires: str | None = None
    """The last day on which it holds, as in ``2026-12-31``."""
    expired: bool = False
    """Whether that day is over: then it covers nothing."""

    @property
    def what(self) -> str:
        """As it was written, without the reason."""
        return self.code if self.case is None else f"{self.code}:{self.case}"

    def covers(self, code: str, identity: Identity, *names: str) -> bool:
        """Whether it is for a finding with this code and identity, under one of these names."""
        if self.identity is not None:
            return self.identity == identity and not self.expired
        return self.code == code and (self.case is None or self.case in names)

    def may_cover(self, identity: Identity, old_signature: str) -> bool:
        """Whether it was written by a version whose findings had no formula, for one like this."""
        if self.identity is not None:
            return self.identity == replace(identity, form=None) and not self.expired
        return self.code == identity.code and self.case == old_signature


def waiver(text: str) -> Waiver:
    """``CODE[:CASE]=REASON``; raises InputError for anything else."""
    found = re.fullmatch(FORM, text)
    if found is None:
        raise InputError(
            f"--accept takes CODE[:CASE]=REASON, for example AGV206:k3f9a1='groups are never "
            f"split here', got {text!r:.200}"
        )
    known = code(found[1])
    if known.effect is Effect.WARNING:
        raise InputError(f"--accept {known.code}: a warning fails nothing, so there is no need")
    return Waiver(known.code, found[2], found[3].strip())
