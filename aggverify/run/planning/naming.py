"""What a person writes for a mode: its own name, or a framework's."""

from __future__ import annotations

from aggverify.errors import InputError, NotClaimable
from aggverify.execution.claim import NONLINEAR
from aggverify.oracles import LEGACY, OracleError, family, mode, translated


def canonical(name: str, micro_batch_size: int | None = None) -> tuple[str, tuple[str, ...]]:
    """The mode's own name and what the verdict says of the one given, if there is anything; raises
    InputError for what is no mode, or none that a reducer can have."""
    if name == NONLINEAR:
        return name, ()
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


def _sized(name: str, meaning: str, size: int | None) -> tuple[str, tuple[str, ...]]:
    """The mode over micro-batches of that size, and that it is another for every size."""
    other = family(name) != LEGACY.name
    if size is None:
        said = f"{meaning}, which" if other else name
        raise NotClaimable(
            f"not claimable: {said} {LEGACY.why}: say how many with --micro-batch-size B, or check "
            f"--mode {LEGACY.instead} to see what it changes"
        )
    depends = (
        f"{LEGACY.name} depends on the micro-batches: what is said here holds for {size} "
        f"sample{'s' * (size > 1)} in each, dealt in order, and no other size"
    )
    return f"{LEGACY.name}({size})", (*([meaning] if other and meaning else []), depends)
