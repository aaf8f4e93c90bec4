"""What merges logs, ``reduce_logs(logs, ctx)``: the micro-batches' of a rank, over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any

import numpy as np

from aggverify.conventions.base import Bound, Misuse, Site
from aggverify.conventions.calls import JudgedCall
from aggverify.conventions.candidate_callable import Offer
from aggverify.conventions.log_forms import (
    BOTH_MERGED,
    FORMS,
    KEYS,
    Log,
    LogForm,
    Spoil,
    mixed,
    part,
)
from aggverify.conventions.run_against import RunAgainst
from aggverify.conventions.trainer import TrainContext, context
from aggverify.oracles.bounds import PRECISIONS, scalar_bound

_ROUNDINGS = 6
"""In addition to the additions: a division, a factor of ``cp_size``, and what turns them into
floats."""


@dataclass(frozen=True, slots=True)
class LogContext(TrainContext):
    """Where logs are merged, and by what some are divided."""

    num_rollouts: int = 0
    """N: rollouts in the step."""


Reduce = Callable[[Callable[..., Any], list[Log], LogContext], Any]


def calls(reduce: Callable[[], Reduce], forms: Sequence[str]) -> Iterator[JudgedCall]:
    """Right logs of each form, whose numbers are compared; and wrong ones on one rank."""
    for name in forms:
        form = FORMS[name]

        def right(function: Callable[..., Any], site: Site, form: LogForm = form) -> str | None:
            out = reduce()(function, _logs(site, form), _context(site))
            return next(filter(None, (_mistake(site, out, key, form) for key in KEYS)), None)

        yield JudgedCall(f"{name} logs", f"{name} logs", False, right)
        for text, spoil in form.spoils.items():
            if spoil is mixed and not {*BOTH_MERGED} <= {*forms}:
                continue

            def wrong(function: Callable[..., Any], site: Site, form: LogForm = form,
                      spoil: Spoil = spoil) -> None:  # fmt: skip
                logs = _logs(site, form, least=2)
                spoil(logs)
                reduce()(function, logs, _context(site))

            yield JudgedCall(f"{name}: {text}", f"{name} logs, {text}", True, wrong)


def _context(site: Site) -> LogContext:
    found = context(site)
    given = {each.name: getattr(found, each.name) for each in fields(found)}
    return LogContext(**given, num_rollouts=site.case.step.num_rollouts)


def _logs(site: Site, form: LogForm, least: int = 1) -> list[Log]:
    at = site.dp_rank, site.cp_rank
    return [
        form.write({key: part(key, *at, k, shared=form.shared) for key in KEYS})
        for k in range(max(site.case.layout.num_microbatches, least))
    ]


def _mistake(site: Site, out: Any, key: str, form: LogForm) -> str | None:
    """Return what is wrong with a key of the merged logs."""
    if not isinstance(out, Mapping):
        return f"returns {type(out).__name__}, no mapping of names to numbers"
    found = [v for name, v in out.items() if str(name).rpartition("/")[2] == key]
    if len(found) != 1:
        return f"log[{key!r}] is {'missing' if not found else 'there twice'}"
    layout = site.case.layout
    every = [
        part(key, d, c, k, shared=form.shared)
        for d in range(layout.dp_size)
        for c in range(layout.cp_size)
        for k in range(layout.num_microbatches)
    ]
    total = sum((Fraction(p.total) for p in every), Fraction(0))
    count = Fraction(sum(p.count for p in every), layout.cp_size)
    exact = total / (site.case.step.num_rollouts if form.over_rollouts else count)
    bound = scalar_bound(abs(exact), 2 * len(every), _ROUNDINGS, PRECISIONS["float32"])
    try:
        value = float(found[0])
    except (TypeError, ValueError):
        return f"log[{key!r}] is {type(found[0]).__name__}, no number"
    if np.isfinite(value) and abs(Fraction(value) - exact) <= bound:
        return None
    return f"log[{key!r}] is {value!r}, and {float(exact)!r} is right"


def plainly(function: Callable[..., Any], logs: list[Log], ctx: LogContext) -> Any:
    """How it is called where no adapter declares it."""
    return function(logs, ctx)


@dataclass(frozen=True, slots=True)
class LogReducer:
    """A function that adds up a rank's logs over all ranks, and returns every key's mean.

    There is one log a micro-batch. Logs are slime's and miles': ``{"keys", "values"}`` with one
    count in front, or ``{"keys", "values", "normalizers"}`` with a count for each key.
    """

    name: str = "log-reducer"
    title: str = "what merges the logs of micro-batches and ranks"
    usual_name: str = "reduce_logs"
    signature: str = (
        "def reduce_logs(logs: list[dict], ctx: aggverify.TrainContext) -> dict[str, float]"
    )
    returns: str = "a mapping of every key to its mean over all micro-batches and ranks"
    mode_is_argument: bool = False
    fixes_engine: bool = True
    not_claimed: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ("logs only: no loss is reduced, under no engine",)
    parameters: tuple[str, ...] = ("logs", "ctx")
    misuses: tuple[Misuse, ...] = ()
    run_against: tuple[RunAgainst, ...] = ()
    ranks: int = 4
    forms: tuple[str, ...] = BOTH_MERGED
    reduce: Callable[[], Reduce] = field(default=lambda: plainly, compare=False)

    @property
    def calls(self) -> tuple[JudgedCall, ...]:
        return tuple(calls(self.reduce, self.forms))

    def modes(self, offer: Offer) -> tuple[str, ...]:
        return ()

    def recognises(self, offer: Offer) -> bool:
        return offer.parameters == ("logs", "ctx")

    def default_engine(self, mode: str | None) -> str:
        return "sum"

    def why_not(self, mode: str | None, engine: str, claimed: Set[str]) -> str | None:
        if mode is not None:
            return "what merges logs has no mode"
        return None if engine == "sum" else "what merges logs reduces no loss, under no engine"

    def bind(self, function: Callable[..., Any], module: Any, site: Site) -> Bound:
        raise TypeError("what merges logs is given no losses")
