"""What a person writes for a mode: its own name, or a framework's."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.conventions import Convention
from aggverify.errors import InputError, NotClaimable, unknown
from aggverify.execution.claim import NONLINEAR
from aggverify.oracles import LEGACY, MODES, OracleError, family, mode, objective, translated

NOTHING: Mapping[str, str] = {}


def own_names(how: Convention) -> Mapping[str, str]:
    """Return the modes by what the convention's function calls them."""
    mode_values = getattr(how, "mode_values", None) or {}
    return {value: name for name, value in mode_values.items() if isinstance(value, str)}


def canonical(
    name: str, micro_batch_size: int | None = None, own: Mapping[str, str] = NOTHING
) -> tuple[str, tuple[str, ...]]:
    """Return the mode's own name, and notes for the verdict on the name that was given.

    Raises InputError for what is no mode, or none that a reducer can have. ``own``: an adapter's
    names, which go before those of frameworks.
    """
    if name == NONLINEAR:
        return name, ()
    try:
        if (known := objective(name)) is not None:
            return known.name, ()
    except OracleError as error:
        raise InputError(str(error)) from None
    if name in own and name not in MODES and _known(name) != own[name]:
        found, notes = canonical(own[name], micro_batch_size)
        return found, (f"{name} is what the adapter calls {own[name]}", *notes)
    if own and _known(name) is None:
        raise unknown("mode", name, [*own, *MODES])
    try:
        meaning = translated(name)
        if meaning.mode == LEGACY.name:
            return _sized(name, meaning.sentence(name), micro_batch_size)
        if (size := mode(meaning.mode).rows) is not None:
            return _sized(name, "", size)
        caveat = mode(meaning.mode).caveats.get(name)
    except OracleError as error:
        raise InputError(str(error)) from None
    if meaning.mode == name:
        return name, ()
    return meaning.mode, (meaning.sentence(name) + (f" ({caveat})" if caveat else ""),)


def _known(name: str) -> str | None:
    """Return the mode that the name means without an adapter, None where it means none."""
    try:
        meaning = translated(name).mode
        return meaning if meaning == LEGACY.name else mode(meaning).name
    except OracleError:
        return None


def _sized(name: str, meaning: str, size: int | None) -> tuple[str, tuple[str, ...]]:
    """Return the mode over micro-batches of that size, and a note that it holds for no other."""
    other = family(name) != LEGACY.name
    if size is None:
        described = f"{meaning}, which" if other else name
        raise NotClaimable(
            f"not claimable: {described} {LEGACY.why}: say how many with --micro-batch-size B, or "
            f"check --mode {LEGACY.instead} to see what it changes"
        )
    depends = (
        f"{LEGACY.name} depends on the micro-batches: this holds for {size} "
        f"sample{'s' * (size > 1)} in each, dealt in order, and no other size"
    )
    return f"{LEGACY.name}({size})", (*([meaning] if other and meaning else []), depends)
