"""A closed form in words, and the one thing that mends it: what the engine asks for."""

from __future__ import annotations

from collections.abc import Mapping

from aggverify.diagnosis.bugs.base import KnownBug
from aggverify.diagnosis.forms import SIZES, ClosedForm
from aggverify.diagnosis.terms import PLACES, TOKENS, Term
from aggverify.execution.subject import Subject

_NONE = (0, 0, 0)
_ROLLOUTS, _GROUPS = Term("rollouts"), Term("prompt groups")
OWN: Mapping[str, ClosedForm] = {
    "token_sum": ClosedForm(None, (), _NONE),
    "sequence_sum": ClosedForm(None, (_ROLLOUTS,), _NONE),
    "constant": ClosedForm(None, (_ROLLOUTS,), _NONE),
    "token_mean": ClosedForm(Term(TOKENS), (), _NONE),
    "sample_mean": ClosedForm(Term(TOKENS, "rollout"), (_ROLLOUTS,), _NONE),
    "prompt_mean": ClosedForm(Term(TOKENS, "prompt group"), (_GROUPS,), _NONE),
}
"""The modes' own; that of ``constant`` is divided by its divisor besides."""
_PARTS = dict(
    zip(PLACES, ("data-parallel rank", "context-parallel rank", "micro-batch"), strict=True)
)
_PLURALS = {
    "dp rank": "data-parallel ranks",
    "cp rank": "context-parallel ranks",
    "micro-batch": "micro-batches",
}
_PLACE_OF = dict(zip(SIZES, PLACES, strict=True))


_LETTERS = "D data-parallel ranks, C context-parallel ranks, K micro-batches, N rollouts"


def described(form: ClosedForm) -> str:
    """Return the form in words.

    For example "the token mean of each sample, averaged over the samples within one micro-batch,
    then over micro-batches".
    """
    over = [_the(outer.text) for outer in form.outer]
    exponents = dict(zip(SIZES, form.exponents, strict=True))
    local = {place for term in (form.inner, *form.outer) if term for place in term.places}
    means = [name for name, e in exponents.items() if e < 0 and _PLACE_OF[name] in local]
    sums = [name for name, e in exponents.items() if not e and _PLACE_OF[name] in local]
    if means:
        over.append(_plural(means))
    words = [_inner(form.inner)]
    if over:
        words.append(f"averaged over {', then over '.join(over)}")
    if sums:
        words.append(f"added up over {_plural(sums)}")
    if form.upper is not None:
        words.append(f"times the {form.upper.text}")
    for name, exponent in exponents.items():
        if exponent and name not in means:
            words.append(f"{'times' if exponent > 0 else 'divided by'} {name}")
    if form.constant != 1:
        words.append(f"times {form.constant}")
    return ", ".join(words)


def _inner(term: Term | None) -> str:
    if term is None:
        return "the sum of the losses"
    if term.what != TOKENS:
        return f"each sum divided by {_the(term.text)}"
    where = _listed([_PARTS[place] for place in term.places]) if term.places else ""
    if not term.unit:
        return f"the token mean of each {where}" if where else "the token mean of the step"
    return f"the token mean of each {term.unit}{f' within one {where}' if where else ''}"


def _the(text: str) -> str:
    return text if text.startswith("the ") else f"the {text}"


def _plural(names: list[str]) -> str:
    return _listed([_PLURALS[_PLACE_OF[name]] for name in names])


def _listed(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def whole(form: ClosedForm, subject: Subject) -> frozenset[str]:
    """Which parts of a form are the mode's own, by the names of ``clues.PARTS``."""
    own = OWN.get(subject.mode or "")
    if own is None or subject.oracle:
        return frozenset()
    same = {
        "inner": form.inner == own.inner,
        "outer": sorted(t.text for t in form.outer) == sorted(t.text for t in own.outer),
        "sizes": not any(form.exponents),
    }
    return frozenset(name for name, is_own in same.items() if is_own)


def needs_no_count(subject: Subject) -> bool:
    """Whether the mode's weight is 1."""
    return OWN.get(subject.mode or "") == OWN["token_sum"] and not subject.oracle


def requirement(subject: Subject) -> str | None:
    """Return what a reducer returns under this engine, whatever it does now.

    None without a mode.
    """
    own = OWN.get(subject.mode or "")
    if own is None and subject.oracle is None:
        return None
    if own is None or subject.oracle:
        return f"return {subject.engine.required}, with the oracle's weights w ({_LETTERS})"
    below = [t.text for t in (own.inner, *own.outer) if t is not None]
    if subject.divisor is not None:
        below.insert(0, f"{subject.divisor:g}")
    if not below:  # without a count none of the letters needs an explanation
        return f"return {subject.engine.required.replace('w*l', 'l')}: no count divides it"
    weight = f"1 / ({' x '.join(below)})"
    counted = "counted once for the whole step"
    return f"return {subject.engine.required}, with w = {weight}, {counted} ({_LETTERS})"


def fix(bug: KnownBug, subject: Subject) -> str:
    """Return how the bug is mended under the subject's engine."""
    factor = subject.engine.required.rpartition(" * sum(")[0]
    if not (bug.times_the_engines_factor and factor):
        return bug.fix
    letters = ", ".join(text for text in _LETTERS.split(", ") if text[0] in factor)
    return f"{bug.fix}, times {factor}" + (f" ({letters})" if letters else "")
