"""What a person writes for a mode: its own name, or a framework's."""

from __future__ import annotations

from aggverify.errors import InputError, NotClaimable
from aggverify.execution.claim import NONLINEAR
from aggverify.oracles import LEGACY, OracleError, mode, translated


def canonical(name: str) -> tuple[str, tuple[str, ...]]:
    """The mode's own name and what the verdict says of the one given, if it was another; raises
    InputError for what is no mode, or none that a reducer can have."""
    if name == NONLINEAR:
        return name, ()
    try:
        meaning = translated(name)
        if meaning.mode == LEGACY.name:
            said = f"{meaning.sentence(name)}, which" if name != LEGACY.name else name
            raise NotClaimable(
                f"not claimable: {said} {LEGACY.why}; check --mode {LEGACY.instead} to see what it "
                f"changes"
            )
        caveat = mode(meaning.mode).caveats.get(name)
    except OracleError as error:
        raise InputError(str(error)) from None
    if meaning.mode == name:
        return name, ()
    return meaning.mode, (meaning.sentence(name) + (f" ({caveat})" if caveat else ""),)
