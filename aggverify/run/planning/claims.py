"""From a request and what the file offers to the subjects under test, or a clear refusal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from aggverify import oracles
from aggverify.conventions import EXPERTS, FEATURES
from aggverify.conventions.adapter_forms import CallHints
from aggverify.engines import TRAIN_STEP, usable
from aggverify.errors import InputError, NotClaimable, unknown
from aggverify.execution.claim import NONLINEAR, Claim, called_as, check_divisor, is_nonlinear
from aggverify.execution.option_types import OptionType
from aggverify.execution.options import OPTIONS, Option, texts
from aggverify.execution.subject import Subject
from aggverify.execution.term_readings import TERM_READINGS, with_reading
from aggverify.oracles import (
    FAMILIES,
    LEGACY,
    MODES,
    NAMES,
    PAIRED,
    OracleError,
    Policy,
    Step,
    family,
    mode,
    objective,
    translated,
)
from aggverify.run.planning import settings
from aggverify.run.planning.assumed import ASSUMED, assumptions
from aggverify.run.planning.choosing import Choice, choose
from aggverify.run.planning.naming import canonical, own_names
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target


def declaration(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's own ``AGGVERIFY = {...}``, checked; raises InputError."""
    declared = description.get("declared") or {}
    own = declared.get("engine") if isinstance(declared, Mapping) else None
    if isinstance(own, str) and ":" in own:
        # This process would import it, and the candidate must not decide what is run here.
        raise InputError(
            f"AGGVERIFY: name an engine of your own on the command line: --engine {own:.200}"
        )
    keys = {**settings.CLAIMS, ASSUMED.key: ASSUMED}
    return settings.validated("AGGVERIFY", declared, keys)


def completed(request: Request, description: Mapping[str, Any]) -> Request:
    """Complete the request by what the file declares, then by what the project sets.

    An option goes before both.
    """
    declared = declaration(description)
    written = {**request.settings, **declared}
    if request.oracle is not None or request.modes:
        written.pop("mode", None)
        written.pop("oracle", None)
    elif "mode" in declared:
        written.pop("oracle", None)
    modes = request.modes or texts(() if "oracle" in written else written.get("mode", ()))
    if "divisor" not in declared and modes and not any(map(_divided, modes)):
        written.pop("divisor", None)  # the project has it for another of its modes
    values = {o.field: _combined(o, getattr(request, o.field), written) for o in OPTIONS if o.late}
    for key in ("policy", "terms"):
        readings = {**request.settings.get(key, {}), **declared.get(key, {})}
        values[key] = {**readings, **getattr(request, key)}
    values["modes"] = modes
    return replace(request, **values)


def _combined(option: Option, own: Any, written: Mapping[str, Any]) -> Any:
    """Return the command line's value, else the written one; both of an option that adds."""
    if option.kind is OptionType.FLAG:
        return bool(own or written.get(option.key))
    if option.kind is OptionType.TEXTS and option.adds:
        return own | frozenset(texts(written.get(option.key, ())))
    return written.get(option.key) if own is None else own


def settings_note(request: Request) -> tuple[str, ...]:
    """Which settings came from where, for the verdict; empty without any."""
    if not request.settings:
        return ()
    keys = ", ".join(request.settings)
    return (f"[tool.aggverify] in {request.settings_source} says {keys} (options go first)",)


def _hints(request: Request) -> CallHints:
    """Return what the options declare of a function that needs an adapter."""
    modes = [translated(name).mode for name in request.modes if name in (*MODES, *NAMES)]
    mode = modes[0] if len(modes) == 1 and modes[0] in MODES else None
    return CallHints(mode=mode, engine=request.engine, divisor=request.divisor)


def subjects(
    request: Request, target: Target, description: Mapping[str, Any]
) -> tuple[Subject, ...]:
    """One subject per mode; a single one with mode None when the mode is to be found out."""
    choice = choose(target, description, request.called, hints=_hints(request))
    own = own_names(choice.convention)
    named = dict(canonical(name, request.micro_batch_size, own) for name in request.modes)
    request = replace(request, modes=tuple(named))
    modes = request.modes or _default_modes(choice, request)
    _check_micro_batch_size(request, modes)
    if request.divisor is not None and not any(map(_divided, modes)):
        given = ", ".join(m or "no mode" for m in modes)
        raise InputError(
            f"--divisor {request.divisor!r} belongs to --mode constant, but the mode is {given}"
        )
    if request.oracle is not None:
        _check_own_mode(request, choice)
        modes = (None,)
    try:
        found = [
            Subject.of(_claim(request, target, choice, modes, name)).noting(
                *(named.get(name) or canonical(name)[1] if name else ())
            )
            for name in modes
        ]
    except OracleError as error:
        raise InputError(str(error)) from None
    declared, asked = request.engine is not None, bool(request.modes)
    untold = tuple(_untold(choice))
    assumed = assumptions(description.get("declared") or {}, target.path)
    return tuple(
        s.knowing(
            engine_declared=declared, mode_declared=asked, untold=untold, assumed=assumed
        ).noting(*_notes(s), *_always_wrong(s))
        for s in found
    )


def _notes(subject: Subject) -> tuple[str, ...]:
    """Return the notes of the subject's convention."""
    if subject.objective is None or not getattr(subject.convention, "has_ratios", False):
        shared = EXPERTS in subject.features
        return (*subject.convention.notes, *(_EXPERTS_NOTE if shared else ()))
    return ("log-ratios to the old, the rollout and the reference policy are the losses",)


_EXPERTS_NOTE = (
    "every second response token's weight is read from the parameter of an expert, on one of two "
    "ranks",
)


def _untold(choice: Choice) -> Iterator[tuple[str, str]]:
    """Features that the function's version has no parameter for."""
    for feature, parameter in getattr(choice.convention, "named_by", {}).items():
        if parameter not in choice.offer.parameters:
            yield feature, f"this version of {choice.offer.name} takes no {parameter}"


def _always_wrong(subject: Subject) -> Iterator[str]:
    """Yield why the claimed mode is never right through the convention, where that is known."""
    how = subject.convention
    for name, why in getattr(how, "always_wrong", {}).items():
        if name == subject.mode:
            yield f"{name} is never right through {how.name}: {why}"


_DEFAULT_DIVISOR = 16.0
"""The worked examples' divisor: taken for ``constant`` where no person has named that mode."""


def _divided(name: str | None) -> bool:
    """Whether a mode takes ``--divisor``; what is no mode at all is refused later."""
    try:
        return name is not None and mode(translated(name).mode).needs_divisor
    except OracleError:
        return False


def _default_modes(choice: Choice, request: Request) -> tuple[str | None, ...]:
    """Return the modes that it takes and that can be right; all where none can, to report why."""
    how = choice.convention
    if not how.mode_is_argument:
        return (None,)
    modes = how.modes(choice.offer)
    claimed = request.claims | ({"whole-groups"} if request.group_size else frozenset())
    if request.micro_batch_size is None:
        modes = tuple(m for m in modes if m != LEGACY.name)
    else:
        modes = tuple(canonical(m, request.micro_batch_size)[0] for m in modes)
    engines = {mode: request.engine or how.default_engine(mode) for mode in modes}
    right = (m for m, what in engines.items() if how.why_not(m, what, claimed) is None)
    return tuple(right) or modes


def _check_own_mode(request: Request, choice: Choice) -> None:
    """Whether ``--oracle FILE`` can stand in the place of a mode."""
    if request.modes:
        raise InputError(f"--oracle takes the place of --mode, got --mode {request.modes[0]!r} too")
    if choice.convention.mode_is_argument:
        raise InputError(
            f"{choice.function} takes its mode as an argument ({choice.convention.name} "
            f"convention), so it cannot implement {request.oracle!r}"
        )


def _claim(
    request: Request, target: Target, choice: Choice, modes: Sequence[str | None], name: str | None
) -> Claim:
    how = choice.convention
    engine_name = request.engine or how.default_engine(None if is_nonlinear(name) else name)
    features = request.claims | ({"whole-groups"} if request.group_size else frozenset())
    _check_mode(request, choice, name)
    if family(name or "") == LEGACY.name and request.engine is None and not how.fixes_engine:
        raise InputError(f"--mode {LEGACY.name} needs --engine: the {how.name} convention has none")
    _check_features(request)
    usable(engine_name)
    _check_right(choice, None if is_nonlinear(name) else name, engine_name, features)
    divisor = request.divisor if _divided(name) else None
    if name == "constant" and not request.modes and divisor is None:
        divisor = _DEFAULT_DIVISOR
    return Claim(
        target=target.text,
        function=choice.function,
        **called_as(how),
        engine=engine_name,
        mode=name,
        divisor=divisor,
        oracle=request.oracle,
        terms=terms(choice, request.terms),
        offered=tuple(m for m in modes if m is not None) if how.mode_is_argument else (),
        policy=_policy(request.policy),
        claimed=features,
        without=request.without,
        strict=request.strict,
        compiled=request.compiled,
        group_size=request.group_size,
        max_world=request.max_world,
        backend=request.ranks.backend,
        seed=request.seed,
        budget=request.budget,
    )


def _check_micro_batch_size(request: Request, modes: Sequence[str | None]) -> None:
    """Whether a size of micro-batches is given for a mode that has one, and groups have none."""
    sized = [name for name in modes if name is not None and family(name) == LEGACY.name]
    if request.micro_batch_size is not None and not sized:
        raise InputError(
            f"--micro-batch-size {request.micro_batch_size} belongs to --mode {LEGACY.name}, but "
            f"the mode is {', '.join(m or 'no mode' for m in modes)}"
        )
    if sized and request.group_size:
        raise InputError(f"--group-size promises whole groups: not with --mode {LEGACY.name}")


def _check_features(request: Request) -> None:
    """Whether these are features, none both claimed and disclaimed."""
    for feature in (*request.claims, *request.without):
        if feature not in FEATURES:
            raise unknown("feature", feature, FEATURES)
    if both := sorted(request.claims & request.without):
        raise InputError(
            f"--claim {both[0]} and --without {both[0]} together: it is claimed or it is not (what "
            f"the file's own AGGVERIFY and [tool.aggverify] say is added to the command line's)"
        )
    if {"whole-groups", "straddling-groups"} <= request.without:
        raise InputError("--without whole-groups and straddling-groups: no step would be left")
    if request.group_size and "whole-groups" in request.without:
        raise InputError("--group-size promises whole prompt groups: not --without whole-groups")


def _check_mode(request: Request, choice: Choice, name: str | None) -> None:
    """Whether the mode has the divisor it needs, and the reducer can have it."""
    if is_nonlinear(name) and choice.convention.mode_is_argument:
        raise InputError(
            f"{choice.function} takes its mode as an argument ({choice.convention.name} "
            f"convention), and all of those are linear: --mode {name} cannot be claimed for it"
        )
    if is_nonlinear(name) and "loss-function" in choice.convention.not_claimed:
        raise InputError(
            f"--mode {name} is judged by the loss, and a whole training step's is not seen"
        )
    _check_pairs(request, name)
    if name is None or is_nonlinear(name):
        return
    if request.modes:
        _check_divisor(name, request.divisor)


def _check_pairs(request: Request, name: str | None) -> None:
    """Whether prompts have as many rollouts as the mode compares."""
    known = None if name in (None, NONLINEAR) else (objective(str(name)) or mode(str(name)))
    size = None if known is None else known.group_size
    if size is not None and request.group_size not in (None, size):
        raise InputError(
            f"--mode {name} compares {size} rollouts of a prompt, got --group-size "
            f"{request.group_size}"
        )


def _check_right(choice: Choice, name: str | None, engine_name: str, features: Set[str]) -> None:
    """Whether the convention can be right in that mode, engine and with those features at all."""
    how, never = choice.convention, usable(engine_name).not_claimed
    reason = how.why_not(name, engine_name, features)
    if reason is None:
        reason = next(
            (f"{what} cannot be claimed: {why}" for what, why in never.items() if what in features),
            None,
        )
    if engine_name == TRAIN_STEP.name != how.default_engine(name):
        reason = "only a whole training step brings that engine along"
    if reason is None and EXPERTS in features and engine_name != TRAIN_STEP.name:
        reason = f"{EXPERTS} cannot be claimed: only a whole training step has a model with some"
    if reason is None and name is not None and not _offered(name, choice):
        reason = f"{choice.function} offers {', '.join(how.modes(choice.offer))}"
    if reason is not None:
        raise NotClaimable(
            f"not claimable: {name or 'any mode'} through the {how.name} convention with engine "
            f"{engine_name}: {reason}"
        )


def _offered(name: str, choice: Choice) -> bool:
    """Whether the function can be in that mode; in any member of a family if none is passed."""
    how = choice.convention
    kind = family(name)
    is_member = (kind in FAMILIES or kind in PAIRED) and not how.mode_is_argument
    return is_member or kind in how.modes(choice.offer)


def terms(choice: Choice, written: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the per-token inputs that a native reducer or an adapter's call takes with losses.

    Each has its reading where ``written`` gives one.
    """
    native = choice.convention.name == "native"
    names = choice.offer.required[2:] if native else getattr(choice.convention, "terms", ())
    written = written or {}
    for name, reading in written.items():
        if name not in names:
            raise unknown("auxiliary term", name, names)
        if reading not in TERM_READINGS:
            raise unknown(f"reading of {name}", reading, TERM_READINGS)
    return tuple(with_reading(name, written.get(name, "")) for name in names)


def _policy(readings: Mapping[str, object]) -> Policy:
    try:
        return Policy.from_text({question: str(r) for question, r in readings.items()})
    except OracleError as error:
        raise InputError(str(error)) from None


def _check_divisor(name: str, divisor: float | None) -> None:
    """Let the oracle judge the divisor: it knows which modes take one and what is allowed."""
    probe = Step((oracles.Sample(1, (1,), 0, 0),))
    needs = mode(name).needs_divisor
    if needs and divisor is None:
        raise InputError(f"--mode {name} needs --divisor L (the number it divides by)")
    if needs:
        try:
            oracles.weights(name, probe, divisor=divisor)
        except OracleError as error:
            raise InputError(f"--divisor {divisor!r} cannot be used: {error}") from None
        check_divisor(float(divisor or 0))
