"""Findings that a person accepts, each with a reason: the option ``--accept``."""

from __future__ import annotations

import re

from msgspec.structs import replace

from aggverify.codes import Effect, code
from aggverify.codes.identity import Identity
from aggverify.errors import InputError
from aggverify.model import Waiver

FORM = r"(AGVW?[0-9]+)(?::([^=\s]+))?=([\s\S]*\S[\s\S]*)"
"""One waiver, as a regular expression: its code, the id or signature if any, and the reason."""


def accepting(
    what: str,
    reason: str,
    identity: Identity | None = None,
    owner: str | None = None,
    expires: str | None = None,
    *,
    expired: bool = False,
) -> Waiver:
    """Return a waiver that covers nothing so far.

    ``what``: a code, and behind a colon the id of one stored case, or a finding's signature. With
    an identity it is for any finding that is the same, unless it is ``expired``.
    """
    return Waiver(what, reason, 0, identity, owner, expires, expired, ())


def covers(waiver: Waiver, code: str, identity: Identity, *names: str) -> bool:
    """Whether it is for a finding with this code and identity, under one of these names."""
    if waiver.identity is not None:
        return waiver.identity == identity and not waiver.expired
    return waiver.what in (code, *(f"{code}:{name}" for name in names))


def may_cover(waiver: Waiver, identity: Identity, old_signature: str) -> bool:
    """Whether it was written by a version whose findings had no formula, for one like this."""
    if waiver.identity is not None:
        return waiver.identity == replace(identity, form=None) and not waiver.expired
    return waiver.what == f"{identity.code}:{old_signature}"


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
    what = known.code if found[2] is None else f"{known.code}:{found[2]}"
    return accepting(what, found[3].strip())
