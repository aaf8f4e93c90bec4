"""What a function might be called with, where the names of its parameters do not show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import islice, product

from aggverify.conventions.adapter_claims import assumed
from aggverify.conventions.adapter_draft import Adapter
from aggverify.conventions.adapter_forms import DIVISOR, EXPRESSIONS, CallForms, CallHints
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.parameters import Role, is_of_the_step, role
from aggverify.oracles import MODES, NAMES

MOST = 240
"""Ways to fill unknown parameters that are tried."""
_LOSSES, _MASKS = "{losses}", "{masks}"
_COUNTS = (Role.TOKENS, Role.SAMPLES, Role.GROUPS, Role.WORLD, Role.MICRO_BATCHES)
_GUESSES = (_LOSSES, _MASKS, *(EXPRESSIONS[r] for r in _COUNTS), repr(DIVISOR), "batch")


def forms(known: CallHints, *, several: bool = False) -> Iterator[CallHints]:
    """Yield the ways to hand over losses and masks and read the result, the usual one first.

    ``several``: it usually returns the loss in front of other things.
    """
    shapes = [None, *CallForms] if known.shape is None else [known.shape]
    for shape in shapes:
        for first in (several, not several):
            yield replace(known, shape=shape, first=first)


def fillings(offer: Offer, known: CallHints) -> Iterator[CallHints]:
    """Every plausible way to fill the parameters whose names show nothing, at most ``MOST``."""
    adapter = Adapter(offer, known)
    unknown = adapter.unknown
    choices = [_mode_names(known) if role(p) is Role.MODE else _GUESSES for p in unknown]
    plausible = (
        filled
        for filled in product(*choices)
        if _plausible(adapter, dict(zip(unknown, filled, strict=True)))
    )
    for filled in islice(plausible, MOST):
        filled_in = dict(zip(unknown, filled, strict=True))
        yield replace(
            known,
            arguments={**known.arguments, **filled_in},
            found=known.found | filled_in.keys(),
        )


def log_prob_readings(offer: Offer, known: CallHints) -> list[CallHints]:
    """Return how log-probabilities without older ones may be read, in the order of trying.

    ``exp(logp - logp.detach()) * advantages`` has the advantages' loss at any of them;
    ``logp * advantages`` has none at 0, and is given the losses as log-probabilities.
    """
    adapter = Adapter(offer, known)
    if not adapter.has_no_ratio:
        return [known]
    losses = {Role.LOG_PROBS: "{zeros}", Role.ADVANTAGES: "-{losses}"}
    filled = {p: losses[what] for p in adapter.given if (what := role(p)) in losses}
    at_zero = replace(
        known, arguments={**filled, **known.arguments}, found=known.found | filled.keys()
    )
    return [at_zero, known]


def one_a_sample(offer: Offer, known: CallHints) -> CallHints | None:
    """Return a reading with one advantage a row, of which only the gradient shows weights.

    None where it takes no advantages, or they cannot be that.
    """
    adapter = Adapter(offer, known)
    form = adapter.shape
    log_probs = [p for p in adapter.given if role(p) is Role.LOG_PROBS]
    current = [p for p in log_probs if not any(word in p.lower() for word in _OTHER_POLICIES)]
    advantages = [p for p in adapter.given if role(p) is Role.ADVANTAGES]
    if form not in (CallForms.ROWS, CallForms.NUMBERS) or not (current and advantages):
        return None
    rows = form.value.losses
    filled = dict.fromkeys(log_probs, f"{rows}.detach()")
    filled |= {current[0]: "{losses}"}
    filled |= dict.fromkeys(advantages, f"-{rows}.new_ones(len({rows}))")
    return replace(known, arguments={**known.arguments, **filled})


_OTHER_POLICIES = ("old", "ref", "rollout", "sampling", "inference", "teacher", "prox", "behav")
"""In names of log-probabilities through which no gradient flows."""
OF_THE_MICRO_BATCH: Mapping[Role | None, tuple[str, str]] = {
    Role.TOKENS: ("sum(int(m.sum()) for m in batch.loss_masks)", "tokens of the micro-batch"),
    Role.SAMPLES: ("len(batch.loss_masks)", "rows of the micro-batch"),
}
"""The micro-batch's count that a parameter for the step's may mean: its expression, in words."""


def other_readings(offer: Offer, known: CallHints) -> Mapping[str, CallHints]:
    """Return, by parameter, counts not named as the step's, read as the micro-batch's."""
    adapter, found = Adapter(offer, known), {}
    for p in (p for p in assumed(adapter) if p not in known.found):
        other = OF_THE_MICRO_BATCH.get(role(p))
        if other is not None and not is_of_the_step(p):
            filled = {**known.arguments, p: other[0]}
            found[p] = replace(known, arguments=filled)
    return found


def _plausible(adapter: Adapter, filled: Mapping[str, str]) -> bool:
    """Whether losses are given once and nothing twice."""
    values = list(filled.values())
    has_mask = Role.MASK in adapter.roles or _MASKS in adapter.known.arguments.values()
    return (
        len(set(values)) == len(values)
        and (_LOSSES in values) != (adapter.has_losses or adapter.is_factory)
        and not (has_mask and _MASKS in values)
    )


def _mode_names(known: CallHints) -> tuple[str, ...]:
    """Return all names of modes as literals; only those of ``known.mode`` where that is given."""
    own = {name: (name,) for name in MODES}
    theirs = {n: tuple(m.mode for m in meanings) for n, meanings in NAMES.items()}
    named = {**theirs, **own}
    return tuple(
        f'"{name}"'
        for name, modes in named.items()
        if len(modes) == 1 and modes[0] in MODES and known.mode in (None, modes[0])
    )


def meant(offer: Offer, known: CallHints) -> str | None:
    """Return the mode that a filled-in name of one stands for; None where there is none."""
    adapter = Adapter(offer, known)
    for parameter in known.found:
        if role(parameter) is Role.MODE and not adapter.values_of(parameter):
            name = known.arguments[parameter].strip('"')
            return name if name in MODES else NAMES[name][0].mode
    return None
