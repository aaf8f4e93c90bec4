"""T12: logs have one shape on all ranks, and what they call the loss is the objective."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise

from aggverify.checks import logged_keys, merged_logs
from aggverify.checks.base import Check, Finding, as_it_is
from aggverify.checks.comparison import lowest_precision, stalls
from aggverify.checks.judging import is_finite, loss_text
from aggverify.checks.spaces import cp_kinds, spread
from aggverify.execution.executed import Execution
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import fully_masked, grid, hard_cases
from aggverify.generation.shapes import LONG_WITH_A_HOLE, sum_of_many
from aggverify.generation.space import Space
from aggverify.oracles.bounds import PRECISIONS, scalar_bound
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout, token_owner
from aggverify.trainer.answer import Log

NAME = "logs_say_the_objective"
OTHER_LOSS, UNMERGEABLE = "AGV511", "AGV512"
RUNNING_TOTAL = "what is logged has grown from one micro-batch to the next"
PART_SILENT = "zeros are logged for a part of the losses"
RESCALED = "the scalar, times the same everywhere"
OTHER_COUNT = "a sum over another count"
_BLANKED = 4
"""Cases that are also run with parts of them fully masked."""
OBJECTIVE = merged_logs.OBJECTIVE


@dataclass(frozen=True, slots=True)
class Objective:
    """The scalar whose gradient the observed weights are, at the case's losses.

    ``bound``: how far a value computed alongside may be from it by rounding.
    """

    exact: Fraction
    bound: Fraction

    def is_met(self, value: Fraction) -> bool:
        return abs(value - self.exact) <= self.bound


def objective(
    subject: Subject, execution: Execution, *, kept_in: str = "float64"
) -> Objective | None:
    """``sum(w*l)`` with the weights as observed; None where some are not finite.

    ``kept_in``: the precision in which the other value is kept, if that is lower than the path's.
    """
    if execution.weights is None or not is_finite(execution):
        return None
    return _objective(subject, execution.case, execution.weights.tolist(), kept_in)


def _objective(
    subject: Subject, case: Case, weights: Sequence[float | Fraction], kept_in: str
) -> Objective:
    pairs = zip(weights, case.losses, strict=True)
    terms = [Fraction(w) * Fraction(x) for w, x in pairs if w]
    magnitude = sum(map(abs, terms), Fraction(0))
    lower = min(lowest_precision(subject, case), kept_in, key=lambda name: PRECISIONS[name].p)
    precision = PRECISIONS[lower]
    # Weights and value each carry their own roundings.
    roundings = 2 * subject.roundings_on(case.step) + 1
    bound = scalar_bound(magnitude, max(len(terms) - 1, 0), roundings, precision)
    return Objective(sum(terms, Fraction(0)), bound)


def space(subject: Subject) -> Space | None:
    """Small layouts, fully masked samples included; only where there are logs.

    One call, where those of several are not merged.
    """
    if not subject.returns_logs:
        return None
    world = min(4, subject.max_world)
    sizes = {"dp": 3, "cp": 3, "micro_batches": 2, "min_units": 1, "max_world": world}
    if getattr(subject.convention, "logs", "engine") == "unmerged":
        sizes |= {"dp": 1, "cp": 1, "micro_batches": 1}
    return spread(subject, **sizes, empty_samples=True)


def judge(subject: Subject, executions: Sequence[Execution]) -> Finding | None:
    """Judge whether logs can be merged, then how they differ from the objective.

    Then whether every key is the same in every layout.
    """
    ran, *for_keys = executions
    found = _of_the_objective(subject, ran, for_keys)
    # Of a mode whose micro-batches have so many samples each, one rank with all of them is no case.
    known = found is not None or subject.rows is not None
    return found if known else logged_keys.judge(NAME, subject, ran.case, for_keys)


def _of_the_objective(
    subject: Subject, ran: Execution, others: Sequence[Execution]
) -> Finding | None:
    """``others``: the same reducer's on other cases, which show what is logged instead."""
    if not ran.logs:
        return None
    own = merged_logs.applies(subject)  # the trainer's own function has merged them
    why = merged_logs.malformed(ran) if own else _malformed(ran)
    if why is not None:
        return Finding(UNMERGEABLE, NAME, why, ran.case, subject.mode)
    # Logs are usually kept in float32, whatever the losses are in.
    wanted = objective(subject, ran, kept_in="float32")
    key = merged_logs.objective(ran) if own else OBJECTIVE
    if wanted is None or key is None or not (own or _has(key, ran)):
        return None
    value = _value(subject, ran, key)
    lost = value is not None and stalls(ran.case, value, wanted.exact)
    if lost and not (ran.value is not None and stalls(ran.case, ran.value, wanted.exact)):
        exact = f"the scalar whose gradient is taken {float(wanted.exact)!r}"
        message = f"log[{key!r}] is {loss_text(value)}, added up in {ran.case.dtype}, and {exact}"
        return Finding(OTHER_LOSS, NAME, message, ran.case, subject.mode)
    if value is not None and (wanted.is_met(value) or _is_the_modes(subject, ran, value)):
        return None
    pair = isinstance(log := ran.logs[0][0], tuple) and len(dict(log)[key]) > 1
    what = f"log[{key!r}]{', merged as a sum over a count,' if pair else ''}"
    share = "" if own else _wrong_share(subject, ran, key, wanted)
    factor = "" if share else _factor(value, wanted, ran.case)
    exact = f"the scalar whose gradient is taken {float(wanted.exact)!r}{factor and ': ' + factor}"
    signs = (share,) if share else (factor, *_rescaled(subject, key, (ran, *others), pair=pair))
    return Finding(
        OTHER_LOSS,
        NAME,
        f"{what} is {loss_text(value)}, {exact}{share and ': ' + share}",
        ran.case,
        subject.mode,
        bound=wanted.bound,
        signs=signs,
    )


def logged_value(subject: Subject, ran: Execution) -> Fraction | None:
    """Return what is logged as the objective, merged as its trainer does; None where nothing is."""
    own = merged_logs.applies(subject)
    if ran.failure is not None or not ran.logs:
        return None
    key = merged_logs.objective(ran) if own else OBJECTIVE
    return None if key is None or not (own or _has(key, ran)) else _value(subject, ran, key)


def _value(subject: Subject, ran: Execution, key: str) -> Fraction | None:
    """Return what is logged, merged as its trainer does; None where it is not finite."""
    own = merged_logs.applies(subject)
    return merged_logs.value(ran, key) if own else _merged(subject, ran, key)


def _rescaled(subject: Subject, key: str, ran: Sequence[Execution], *, pair: bool) -> Iterator[str]:
    """Yield what all of these together show.

    The logged value is the scalar times one number, or times the same sizes of every layout; a mean
    over another count does not change with the losses.
    """
    ratios = [_ratio(subject, each, key) for each in ran]
    seen = [(each.case, ratio) for each, ratio in zip(ran, ratios, strict=True) if ratio]
    values = {ratio for _, ratio in seen}
    by_sizes = any(
        all(ratio == _size(each.layout, name) ** power for each, ratio in seen)
        for name in _SIZES
        for power in (1, -1)
    )
    if len(seen) > 1 and None not in ratios and (len(values) == 1 or by_sizes):
        yield RESCALED
    steps = defaultdict[object, set[Fraction | None]](set)
    for each, ratio in zip(ran, ratios, strict=True):
        steps[each.case.step, each.case.layout].add(ratio)
    if pair and all(len(own) == 1 and None not in own for own in steps.values()):
        yield OTHER_COUNT


def _ratio(subject: Subject, ran: Execution, key: str) -> Fraction | None:
    """Return what is logged over the scalar; None where either is missing or the scalar is 0."""
    wanted = objective(subject, ran, kept_in="float32")
    if wanted is None or not wanted.exact or not ran.logs or not _has(key, ran):
        return None
    value = _value(subject, ran, key)
    return None if value is None else (value / wanted.exact).limit_denominator(1000)


_SIZES = ("cp_size", "dp_size", "num_microbatches")


def _size(layout: Layout, name: str) -> Fraction:
    return Fraction(getattr(layout, name))


def _is_the_modes(subject: Subject, ran: Execution, value: Fraction) -> bool:
    """Whether it is the mode's scalar.

    Then the log is right and the update is wrong, which the checks of weights report.
    """
    right = subject.expected(ran.case.step)
    return right is not None and _objective(subject, ran.case, right, "float32").is_met(value)


def _placed(ran: Execution) -> list[tuple[str, Log]]:
    return [(f"rank {r}, micro-batch {k}", log) for r, logs in enumerate(ran.logs)
            for k, log in enumerate(logs)]  # fmt: skip


def _malformed(ran: Execution) -> str | None:
    """Return what keeps these logs from being merged key by key, in the order of the first."""
    flat = _placed(ran)
    for where, log in flat:
        if isinstance(log, str):
            return f"{where}: {log}"
    (first, reference), *others = flat
    for where, log in others:
        if _shape(log) != _shape(reference):
            return (
                f"keys are merged by position, but {first} logs {_named(reference)} "
                f"and {where} {_named(log)}"
            )
    return None


def _shape(log: object) -> object:
    """Keys in order, each with the number of its numbers."""
    return [(key, len(n)) for key, n in log] if isinstance(log, tuple) else None


def _named(log: object) -> str:
    return ", ".join(key for key, _ in log) or "no key" if isinstance(log, tuple) else "nothing"


def _has(key: str, ran: Execution) -> bool:
    return isinstance(log := ran.logs[0][0], tuple) and key in dict(log)


def _merged(subject: Subject, ran: Execution, key: str) -> Fraction | None:
    """Return the merged value of the objective's key, None when it is not finite."""
    numbers = [[dict(log)[key] for log in logs if isinstance(log, tuple)] for logs in ran.logs]
    found = logged_keys.merged(subject, ran, key, numbers)
    return None if found is None else found.value


def _wrong_share(subject: Subject, ran: Execution, key: str, wanted: Objective) -> str:
    """Return what ranks log of a micro-batch instead of its own share; "" for nothing known."""
    numbers = logged_keys.numbers_of(ran).get(key, ())
    if len({len(n) for rank in numbers for n in rank}) != 1:
        return ""
    logged, own = _by_cell(ran, numbers)
    by_rank = _by_rank(ran, numbers)
    is_silent = any(share and not any(logged) for logged, share in by_rank)
    if is_silent and any(any(logged) for logged, _ in by_rank):
        return PART_SILENT
    none = (0.0,) * len(numbers[0][0])
    grown = [[_growth(*two) for two in pairwise((none, *rank))] for rank in numbers]
    found = logged_keys.merged(subject, ran, key, grown)
    if found is None or not wanted.is_met(found.value):
        return ""
    # Where every micro-batch logs its own share, times a number, nothing has grown.
    total, all_logged = sum(own.values()), sum(each[0] for each in logged.values())
    apart = max(abs(logged[cell][0] * total - own[cell] * all_logged) for cell in own)
    return RUNNING_TOTAL if apart > wanted.bound * Fraction(abs(all_logged) + abs(total)) else ""


Cells = dict[tuple[int, int], tuple[float, ...]]
"""Numbers by data-parallel rank and micro-batch."""


def _by_cell(
    ran: Execution, numbers: logged_keys.Numbers
) -> tuple[Cells, dict[tuple[int, int], float]]:
    """Return what each rank logs of each micro-batch, and its share of the objective.

    What is logged is added up over context-parallel ranks.
    """
    assert ran.weights is not None
    layout = ran.case.layout
    cells = [(dp, k) for dp, k, _ in layout.cells()]
    own = dict.fromkeys(cells, 0.0)
    owners = token_owner(ran.case.step, layout)
    for (dp, _, k), weight, loss in zip(owners, ran.weights.tolist(), ran.case.losses, strict=True):
        own[dp, k] += weight * loss if weight else 0.0
    ranks = range(layout.cp_size)
    columns = ((numbers[dp * layout.cp_size + c][k] for c in ranks) for dp, k in cells)
    logged = [tuple(map(sum, zip(*column, strict=True))) for column in columns]
    return dict(zip(cells, logged, strict=True)), own


def _by_rank(ran: Execution, numbers: logged_keys.Numbers) -> list[tuple[tuple[float, ...], float]]:
    """Return what every rank logs of each micro-batch, and its own share of the objective.

    Of copies, what all of them log and the whole share.
    """
    layout = ran.case.layout
    if layout.cp_kind == "gathered" and layout.cp_size > 1:
        logged, own = _by_cell(ran, numbers)
        return [(logged[cell], own[cell]) for cell in own]
    assert ran.weights is not None
    shares = dict.fromkeys(
        ((d, c, k) for d, k, _ in layout.cells() for c in range(layout.cp_size)), 0.0
    )
    owners = token_owner(ran.case.step, layout)
    for owner, weight, loss in zip(owners, ran.weights.tolist(), ran.case.losses, strict=True):
        shares[owner] += weight * loss if weight else 0.0
    return [(numbers[d * layout.cp_size + c][k], own) for (d, c, k), own in shares.items()]


def _growth(before: tuple[float, ...], after: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(b - a for a, b in zip(before, after, strict=True))


def _factor(value: Fraction | None, wanted: Objective, case: Case) -> str:
    """``cp_size times it``, "" where it is no size of the layout."""
    if not value or not wanted.exact:
        return ""
    ratio = (value / wanted.exact).limit_denominator(1000)
    for name in _SIZES:
        size = _size(case.layout, name)
        if size > 1 and ratio in (size, 1 / size):
            return f"{name if ratio == size else f'1/{name}'} times it"
    return ""


def _stored(subject: Subject) -> Iterator[Case]:
    """Yield what every check begins with, and sums of many terms."""
    kinds = cp_kinds(subject) or ("zigzag",)
    usual = (*hard_cases(), *grid(subject.max_world, kinds))
    yield from usual
    own = space(subject)
    split = [c for c in usual if own and c in own and c.layout.num_microbatches > 1]
    for case in split[:_BLANKED]:
        yield from fully_masked(case)
    yield from (replace(LONG_WITH_A_HOLE, dtype=dtype) for dtype in ("float64", "bfloat16"))
    for case in (sum_of_many(), sum_of_many(samples=True)):
        # In float64 first: what is wrong there as well is not lost for want of bits.
        yield from (replace(case, dtype="float64"), case)


CHECK = Check(
    name=NAME,
    title="logs have one shape everywhere, each key one value, and their loss is the objective",
    tests="T12",
    space=space,
    stored=_stored,
    variants=lambda case: (case, *logged_keys.variants(case)),
    judge=judge,
    max_examples=40,
    on_branches=as_it_is,
    not_applicable="returns no log",
    of_weights=False,
    linear_only=True,
)
