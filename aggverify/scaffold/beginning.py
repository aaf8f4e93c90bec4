"""From a person's target to the files that a project begins with, and what was inferred."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aggverify.conventions import undeclared
from aggverify.conventions.adapter_claims import claims
from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import CallHints
from aggverify.conventions.adapter_text import adapted
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.parameters import role
from aggverify.errors import CandidateError, InputError, NoReducer
from aggverify.execution.deadline import OutOfTime
from aggverify.execution.executor import Executor
from aggverify.run.opening import opened, resolved
from aggverify.run.planning.choosing import Choice, choose, nearest
from aggverify.run.planning.discovery import prepared
from aggverify.run.planning.naming import canonical
from aggverify.run.planning.request import Request
from aggverify.run.planning.target import Target, origin, parse_target
from aggverify.scaffold.files import Files, files
from aggverify.scaffold.probing import Probe, Probed
from aggverify.scaffold.questions import (
    Ask,
    in_doubt,
    no_answers,
    of_claims,
    of_counts,
    of_parameters,
    of_subject,
)
from aggverify.scaffold.variants import OF_THE_MICRO_BATCH
from aggverify.world import Pool, Template


@dataclass(frozen=True, slots=True)
class ScaffoldRequest:
    """What a person gives on the command line."""

    target: str
    mode: str | None = None
    engine: str | None = None
    divisor: float | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Expressions by parameter."""


@dataclass(frozen=True, slots=True)
class ScaffoldResult:
    """Files to be written, what was inferred, and what is left to the person."""

    files: Files
    inferred: tuple[str, ...]
    left: tuple[str, ...]
    """Names in capitals that a file asks for."""


def begin(wanted: ScaffoldRequest, pool: Pool, ask: Ask = no_answers) -> ScaffoldResult:
    """Look at the target, call it, ask; raises AggverifyError where nothing can be begun with."""
    target = parse_target(wanted.target)
    with opened(pool, target.setup(), command="new") as template:
        choice = _recognised(target, template.description)
        if choice is not None:
            if wanted.arguments:
                raise InputError(f"{choice.offer.shown} needs no adapter, so --set has no use")
            return _as_it_is(wanted, target, template, choice, ask)
        offer = _adaptable(target, template.description)
    known = _given_hints(wanted, offer)
    unbuilt = offer.owner if offer.why_not else ""
    probed = Probed(known) if unbuilt else _probed(target, offer, pool, known)
    if Adapter(offer, probed.known).unknown and not (probed.among or unbuilt):
        hints = of_parameters(offer, known, ask)
        if hints != known:
            probed = _probed(target, offer, pool, hints)
    others = _others(target, offer, pool, probed)
    hints = of_counts(offer, probed, others, ask)
    if hints != probed.known:
        probed, others = _probed(target, offer, pool, hints), {}
    else:
        instead = {p: OF_THE_MICRO_BATCH[role(p)][1] for p in others}
        probed = replace(probed, known=replace(probed.known, instead=instead))
    # What cannot be called yet is identified by `check`.
    known = known if unbuilt else of_claims(offer, probed, ask)
    unknown = Adapter(offer, known).unknown
    left = (f"how {unbuilt} is built",) * bool(unbuilt) + (*known.left, *unknown)
    left += ("the call",) * bool(known.trouble and not unknown)
    return ScaffoldResult(
        files(target, offer.name, adapter=adapted(offer, origin(target), known)),
        (*_inferred(offer, probed, known), *_in_doubt(offer, probed, others)),
        left,
    )


def _probed(target: Target, offer: Offer, pool: Pool, known: CallHints) -> Probed:
    """Return what calls of it show, while there is time for them."""
    try:
        return Probe(target, offer, pool).run(known)
    except OutOfTime:
        return Probed(replace(known, trouble="calls of it were not over when the time was"))


def _others(target: Target, offer: Offer, pool: Pool, probed: Probed) -> Mapping[str, Probed]:
    """Return what other readings of counts give, while there is time to try them."""
    try:
        return Probe(target, offer, pool).others(probed)
    except OutOfTime:
        return {}


def _in_doubt(offer: Offer, probed: Probed, others: Mapping[str, Probed]) -> Iterator[str]:
    """Which guess has another plausible reading, with another verdict."""
    for parameter, other in others.items():
        written = shlex.quote(f"{parameter}={Adapter(offer, other.known).expression(parameter)}")
        yield f"to confirm: {in_doubt(offer, parameter, probed, other)} The latter: --set {written}"


def _given_hints(wanted: ScaffoldRequest, offer: Offer) -> CallHints:
    """Return what the command line declares of the function.

    Raises InputError for what cannot be.
    """
    if odd := wanted.arguments.keys() - set(offer.parameters):
        raise InputError(f"{offer.shown} has no parameter {sorted(odd)[0]!r:.100}")
    mode = None if wanted.mode is None else canonical(wanted.mode)[0]
    known = CallHints(wanted.arguments, mode=mode, engine=wanted.engine, divisor=wanted.divisor)
    adapter = Adapter(offer, known)
    parameter = adapter.mode
    if parameter is None or mode is None:
        return known
    if mode not in (accepted := adapter.values_of(parameter).values()):
        raise InputError(
            f"{offer.name} takes its mode from {parameter}, which can be "
            f"{', '.join(dict.fromkeys(accepted))}; what {mode} is called there: "
            f"--set {parameter}=..."
        )
    return known


def _recognised(target: Target, description: Mapping[str, Any]) -> Choice | None:
    """Return the function and its convention, if it has one's shape and needs no adapter."""
    try:
        choice = choose(target, description, "auto", undeclared())
    except NoReducer:
        return None
    return choice if choice.convention.recognises(choice.offer) else None


def _adaptable(target: Target, description: Mapping[str, Any]) -> Offer:
    """Return the function to write an adapter for; raises CandidateError with what stands there."""
    offers = [Offer.from_json(data) for data in description["offers"]]
    own = [
        offer
        for offer in offers
        if (offer.owner or not offer.why_not)
        and (offer.own if target.name is None else offer.name == target.name)
    ]
    found = nearest(own) or (own[0] if len(own) == 1 else None)
    if found is None or not Adapter(found).plain or not found.required:
        # Raises with what is known of the target, unless that has a convention's shape.
        choose(target, description, "auto", undeclared())
        raise CandidateError(f"{target.text}: nothing there that an adapter could call")
    return found


def _as_it_is(
    wanted: ScaffoldRequest, target: Target, template: Template, choice: Choice, ask: Ask
) -> ScaffoldResult:
    """Return a test without an adapter for a function of a known signature.

    The test gives the options that the function's file does not declare.
    """
    request = Request(
        target.text,
        modes=() if wanted.mode is None else (wanted.mode,),
        engine=wanted.engine,
        divisor=wanted.divisor,
    )
    found = [prepared(s, Executor(template)) for s in resolved(request, target, template)]
    declared = template.description.get("declared") or {}
    options, left = of_subject(found, ask)
    options = {key: value for key, value in options.items() if key.rstrip("s") not in declared}
    made = files(target, choice.function, options=options, left=left)
    how_called = f"{choice.offer.shown}: {choice.convention.title}, called as it is"
    inferred = (how_called, *(f"{key}: {value}" for key, value in options.items()))
    return ScaffoldResult(made, inferred, left)


def _inferred(offer: Offer, probed: Probed, known: CallHints) -> Iterator[str]:
    """Yield what the person should look at, a line each."""
    adapter = Adapter(offer, known)
    yield f"{offer.shown}: called through an adapter"
    for parameter in adapter.given:
        if parameter not in adapter.unknown:
            guessed = parameter not in known.arguments
            how = " (guessed from its name)" if guessed else ""
            how = " (found by calling it)" if parameter in known.found else how
            yield f"  {parameter} = {adapter.expression(parameter)}{how}"
    if known.trouble:
        yield f"  called so, it came to no result: {known.trouble}"
    for mode, other in probed.among.items():
        if known.mode is None:
            means = Adapter(offer, other.known)
            hints = ", ".join(f"{p} = {means.expression(p)}" for p in adapter.unknown)
            yield f"  --mode {mode} means {hints}"
    for key, value in claims(adapter).items():
        if key not in known.left:
            yield f"{key}: {value}"
    if "engine" not in claims(adapter) and "engine" not in known.left:
        yield "engine: not named; aggverify check assumes the plain sum, and prints that"
