"""Which of the candidate's callables is verified, and how it is called; or why none can be."""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aggverify.conventions import (
    CONVENTIONS,
    Convention,
    Offer,
    by_shape,
    by_shape_or_name,
    calls_bound,
    convention,
)
from aggverify.conventions.adapter_draft import adaptable, best
from aggverify.conventions.adapter_forms import CallHints
from aggverify.conventions.adapter_text import adapted, adapter_file
from aggverify.conventions.parameters import Role, role
from aggverify.errors import CandidateError, NoReducer
from aggverify.run.planning.target import Target, origin

_LISTED = 12


@dataclass(frozen=True, slots=True)
class Choice:
    """The function to verify and how it is called."""

    function: str
    offer: Offer
    convention: Convention


def choose(
    target: Target,
    description: Mapping[str, Any],
    wanted: str,
    among: Collection[Convention] | None = None,
    hints: CallHints | None = None,
) -> Choice:
    """Return the reducer among what the module offers.

    Raises CandidateError with what stands there.

    ``wanted``: a convention's name, or ``auto``: one of ``among``, by default all that a signature
    shows. ``hints``: what a person declares, for the adapter of one that has no convention.
    """
    offers = [Offer.from_json(data) for data in description["offers"]]
    known = by_shape() if among is None else [*among]
    conventions = known if wanted == "auto" else [convention(wanted)]
    found = _named if target.name is not None else _found
    choice = found(target, offers, conventions, wanted)
    if choice is None:
        about = [o for o in offers if target.name in (None, o.name)]
        raise _nothing_found(target, about, conventions, hints or CallHints())
    by_position = bool(choice.convention.parameters)
    if by_position and (keyword := set(choice.offer.required) & set(choice.offer.keyword_only)):
        raise CandidateError(
            f"{target.text}: {choice.offer.shown} cannot be called by position, as the "
            f"{choice.convention.name} convention does: keyword-only without a default: "
            f"{', '.join(sorted(keyword))}"
        )
    return choice


def _named(
    target: Target, offers: Sequence[Offer], conventions: Sequence[Convention], wanted: str
) -> Choice | None:
    """Return the function that the person named; None where no convention calls it."""
    found = next((offer for offer in offers if offer.name == target.name), None)
    if found is None:
        raise CandidateError(_no_such(target, offers))
    # A convention that does not call by position may make the object that a method needs.
    callers = [
        how
        for how in conventions
        if not (found.why_not and (how.parameters or (found.owner and calls_bound(how))))
    ]
    shaped = _shaped([found], callers)
    if len(shaped) > 1:
        raise CandidateError(_several(target, shaped))
    if shaped:
        return shaped[0]
    if found.why_not and (wanted == "auto" or conventions[0].parameters):
        if found.owner:
            return None
        raise CandidateError(f"{target.text} {found.why_not}")
    # Convention and function are named: called as named, and where that fails it is a finding.
    if wanted != "auto" or _may_be_native(found):
        return _choice(found, conventions[0])
    return None


def _may_be_native(offer: Offer) -> bool:
    """Whether it takes two arguments, and no name shows that the second is no batch."""
    second = offer.parameters[1] if len(offer.parameters) > 1 else ""
    return offer.takes(2) and role(second) in (None, Role.BATCH)


def _found(
    target: Target, offers: Sequence[Offer], conventions: Sequence[Convention], wanted: str
) -> Choice | None:
    """Choose what has a convention's shape; None where nothing has.

    The file's own functions go before imported ones and methods; then the usual name decides.
    """
    own = [o for o in offers if o.own and not o.why_not and not o.owner]
    imported = [o for o in offers if not o.own and not o.why_not]
    methods = [o for o in offers if o.own and o.owner]
    found = _shaped(own, conventions)
    if not found:
        found = _shaped(imported, conventions)
        usual = [c for c in found if c.function == c.convention.usual_name]
        found = usual if own or any(not o.why_not for o in methods) else usual or found
    found = found or _shaped(methods, conventions)
    if len(found) > 1:
        found = [c for c in found if c.function == c.convention.usual_name] or found
    if len(found) == 1:
        return found[0]
    if found:
        raise CandidateError(_several(target, found))
    if wanted != "auto" and len(own) == 1:
        return _choice(own[0], conventions[0])
    return None


def _shaped(offers: Sequence[Offer], conventions: Sequence[Convention]) -> list[Choice]:
    seen = ((o if calls_bound(how) else o.unbound, how) for o in offers for how in conventions)
    # A method whose object cannot be built is for conventions that make the object themselves.
    made = (
        pair for pair in seen if not (pair[0].owner and pair[0].why_not and calls_bound(pair[1]))
    )
    return [_choice(o, how) for o, how in made if how.recognises(o)]


def _choice(offer: Offer, how: Convention) -> Choice:
    """Return the choice; of a method it names the class where the convention makes the object."""
    owner = offer.owner if getattr(how, "of_a_class", False) else ""
    return Choice(owner or offer.name, offer, how)


def _several(target: Target, found: Sequence[Choice]) -> str:
    if len({choice.function for choice in found}) == 1:
        known = [c.convention for c in found]
        return (
            f"{target.text}: {found[0].offer.shown} has the shape of "
            f"{' and of '.join(f'{how.name} ({how.title})' for how in known)}: say which, "
            f"{' or '.join(f'--convention {how.name}' for how in known)}"
        )
    width = max(len(choice.function) for choice in found) + len(target.text) + 1
    lines = [
        f"    {f'{target.text}:{c.function}':{width}}  {c.offer.shown}  ({c.convention.name}"
        f"{'' if c.offer.own else ', imported'})"
        for c in found[:_LISTED]
    ]
    more = [f"    and {len(found) - _LISTED} more"] if len(found) > _LISTED else []
    head = f"{target.text} offers several reducers; name the one to check:"
    return "\n".join([head, *lines, *more])


def _no_such(target: Target, offers: Sequence[Offer]) -> str:
    """Return the message that nothing has the name a person typed."""
    file = target.text.rpartition(":")[0]
    own = [o for o in offers if o.own]
    text = f"{file} has no {target.name!r:.200}"
    if not own:
        return f"{text}, and defines no function itself"
    close = difflib.get_close_matches(str(target.name)[:80], [o.name for o in offers], 1, 0.5)
    hint = f"; did you mean {close[0]!r}?" if close else ";"
    return f"{text}{hint} it defines:\n{_listed(own)}"


def _listed(offers: Sequence[Offer]) -> str:
    lines = [f"    {o.shown}" + (f": {o.why_not}" if o.why_not else "") for o in offers]
    more = [f"    and {len(lines) - _LISTED} more"] if len(lines) > _LISTED else []
    return "\n".join([*lines[:_LISTED], *more])


def _nothing_found(
    target: Target, offers: Sequence[Offer], conventions: Sequence[Convention], hints: CallHints
) -> NoReducer:
    owners = {o.owner for o in offers}
    offers = [o for o in offers if not (o.why_not and o.name in owners)]
    own = sorted((o for o in offers if o.own), key=adaptable, reverse=True)
    imported = [o for o in offers if not o.own and _shaped([o], conventions)]
    parts = [f"no reducer in {target.text}: "]
    parts[0] += f"it defines\n{_listed(own)}" if own else "it defines no public function"
    if imported:
        parts.append(f"  it imports\n{_listed(imported)}")
    if target.name is None:
        pairs = [o for o in own if not o.why_not and _may_be_native(o)]
        parts += [
            f"  if {o.name} takes losses and batch: aggverify check {target.text}:{o.name}"
            for o in pairs[:3]
        ]
    for o in offers:
        parts += [
            f"  {o.name} has the shape of {how.title}: aggverify check {_of(target, o)} "
            f"--convention {how.name}"
            for how in by_shape_or_name(o)
        ]
    if (offer := nearest(own)) is not None:
        adapter = adapted(offer, origin(target), hints)
        return NoReducer("\n".join([*parts, *_how_to_save(target, offer)]), adapter)
    if any(o.why_not and not o.owner and _shaped([o], conventions) for o in own):
        return NoReducer("\n".join(parts))  # what stands in the way has been named
    parts.append(f"  the simplest signature: {conventions[0].signature}")
    parts.append(f"  `aggverify conventions` lists all {len(CONVENTIONS)}")
    return NoReducer("\n".join(parts))


def nearest(offers: Sequence[Offer]) -> Offer | None:
    """Return the offer that an adapter is written for: a method where it fits no function."""
    return best([o for o in offers if not o.owner]) or best([o for o in offers if o.owner])


def _of(target: Target, offer: Offer) -> str:
    return shlex.quote(target.text if target.name else f"{target.text}:{offer.name}")


def _how_to_save(target: Target, offer: Offer) -> Iterator[str]:
    file = adapter_file(offer.name)
    folder = Path(target.text.rpartition(":")[0] if target.name else target.text).parent
    where = shlex.quote(str(folder / file if target.path is not None else Path(file)))
    spelled = _of(target, offer)
    yield f"  with a test and a CI workflow: aggverify new {spelled}"
    yield f"  below is an adapter that calls {offer.name} as a trainer would; to save and use it:"
    yield f"    aggverify check {spelled} > {where}"
    yield f"    aggverify check {where}"
