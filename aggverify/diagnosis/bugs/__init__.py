"""Bugs that really happened, with the trace each leaves. Data: one entry a bug."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify.diagnosis.bugs import contract, counts, masks, parallel
from aggverify.diagnosis.bugs.base import Bug, Trace
from aggverify.diagnosis.factors import Factor, product_of_sizes
from aggverify.diagnosis.forms import SIZES

BUGS: tuple[Bug, ...] = (*contract.BUGS, *masks.BUGS, *counts.BUGS, *parallel.BUGS)
"""The first that explains a trace is told, so the more specific ones stand first."""


def known_bug(trace: Trace) -> Bug | None:
    """The first bug whose trace fits."""
    return next((bug for bug in BUGS if bug.explains(trace)), None)


def known_bugs(trace: Trace) -> tuple[Bug, ...]:
    """The bug whose trace fits, with those of the sizes it leaves open; or one for every part of
    the factor, if each part is known."""
    first = known_bug(trace)
    if first is None:
        parts = [] if trace.factor is None else list(_parts(trace.factor))
        found = [known_bug(_alone(trace, part)) for part in parts]
        return tuple(b for b in found if b is not None) if all(found) else ()
    if first.shape is None or first.shape.sizes is not None or trace.form is None:
        return (first,)
    sizes = zip(SIZES, trace.form.exponents, strict=True)
    rest = [product_of_sizes([(name, exponent)]) for name, exponent in sizes if exponent]
    more = [known_bug(_alone(trace, part)) for part in rest]
    return (first, *(b for b in more if b is not None))


def _parts(factor: Factor) -> Iterator[Factor]:
    """The sizes of the layout one by one, then everything else in one."""
    if factor.constant != 1 or len(factor.sizes) < 2:
        return
    others = []
    for size in factor.sizes:
        if size[0] in SIZES:
            yield product_of_sizes([size])
        else:
            others.append(size)
    if others:
        yield product_of_sizes(others)


def _alone(trace: Trace, factor: Factor) -> Trace:
    return Trace(trace.symptom, trace.mode, trace.engine, factor=factor)


__all__ = ["BUGS", "Bug", "Trace", "known_bug", "known_bugs"]
