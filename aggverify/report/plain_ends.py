"""What a script makes of its runs: each way in which right and wrong are told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks.base import Shown
from aggverify.report import plain_data
from aggverify.report.plain_told import Told
from aggverify.trainer.torch_modes import AUTOCAST, NO_GRAD


@dataclass(frozen=True, slots=True)
class Ending:
    """Lines that leave ``wrong``, and what they need of the rest."""

    lines: str
    data: tuple[str, ...] = ()
    imports: frozenset[str] = frozenset()
    before_call: str = ""
    after_call: str = ""
    after_return: str = ""


def ending(told: Told) -> Ending | None:
    """The end of the script; None where rounding may hide what is wrong."""
    return _ENDINGS[told.shown](told)


_WEIGHTS = """\
loss, *weights = run(*STEP)
near = [({near!r} * abs(e) + {least!r}) * (e != 0) for e in EXPECTED]
wrong = [not abs(a - e) <= n for a, e, n in zip(weights, EXPECTED, near)]{not_finite}
for expected, actual, off in zip(EXPECTED, weights, wrong):
    print(f"expected {{expected}}, actual {{actual}}{{'   <- wrong' * off}}")"""


def _weights(told: Told) -> Ending | None:
    """Against the expected ones, after any steps before; the loss must be a number, too."""
    if not _is_clear(told):
        return None
    finite = all(map(math.isfinite, told.case.losses))
    not_finite = " + [not math.isfinite(loss)]" if finite else ""
    lines = _WEIGHTS.format(near=told.near, least=told.least, not_finite=not_finite)
    data = [f"EXPECTED = {plain_data.row(told.expected or ())}"]
    if told.before:
        lines, steps = _after(told, lines)
        data.append(steps)
    return Ending(lines, tuple(data), frozenset({"math"}) if finite else frozenset())


def _after(told: Told, lines: str) -> tuple[str, str]:
    """The step after others; where it is also to be run many times, whatever run is not as the
    first of them."""
    others = dict.fromkeys(step for t in told.trials for step in t.before if step != told.case)
    steps = ",\n          ".join(told.other(step) for step in others)
    often = max(t.before.count(told.case) for t in told.trials)
    first = "" if told.expected else "EXPECTED = run(*STEP)[1:]\n"
    if often:
        rows = f"rows = [run(*STEP) for _ in range({often + 1})]"
        other = "loss, *weights = next((row for row in rows if row != rows[0]), rows[0])"
        lines = lines.replace("loss, *weights = run(*STEP)", f"{rows}\n{other}", 1)
    return f"{first}for step in BEFORE:\n    run(*step)\n{lines}", f"BEFORE = [{steps}]"


def _is_clear(told: Told) -> bool:
    """Whether what was observed is further from what is expected than twice what the script allows,
    or is no number."""
    found = told.finding
    if found.fault is not None or found.not_finite or told.before:
        return True
    if told.expected is None or found.observed is None:
        return False
    pairs = zip(told.expected, found.observed, strict=True)
    return any(
        not math.isfinite(w) or abs(Fraction(w) - e) > 2 * Fraction(told.allows(e))
        for e, w in pairs
    )


_OBJECTIVE = """\
loss, *weights = run(*STEP)
terms = [weight * value for weight, value in zip(weights, STEP[3]) if weight]
wrong = [not abs(loss - math.fsum(terms)) <= {near!r} * math.fsum(map(abs, terms))]
print(f"the loss is {{loss}}, the sum of weights times losses {{math.fsum(terms)}}")"""


def _objective(told: Told) -> Ending | None:
    found = told.finding
    if found.observed is not None and found.error is not None:
        pairs = zip(found.observed, told.case.losses, strict=True)
        terms = math.fsum(abs(weight * value) for weight, value in pairs if weight)
        if found.error <= 2 * Fraction(told.near_sum * terms):
            return None
    return Ending(_OBJECTIVE.format(near=told.near_sum), imports=frozenset({"math"}))


_SAME = """\
first, wrong = run(*STEP), []
for words, near, row in [
{runs}
]:
    wrong.append(any(not abs(b - a) <= near * abs(a) for a, b in zip(first, row)))
    print(f"{{words}}: {{row}}{{f', before that {{first}}   <- wrong' * wrong[-1]}}")"""
REPEATED = 8
"""Times that a step is run which gives other bits by itself."""
_VALIDATION = 1e-5
"""What is only looked at is usually kept in float32."""
_AUTOCAST = 0.25
"""Of a weight: bfloat16 rounds a few times."""


def _same(told: Told) -> Ending | None:
    """Bit for bit, where neither the loss nor the mode of torch is another."""
    runs = list(_runs(told))
    data = tuple(line for _, lines in runs for line in lines)
    text = _SAME.format(runs="\n".join(f"    {line}," for line, _ in runs))
    return Ending(text, data)


def _runs(told: Told) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What is run beside the first, with its data."""
    for t in told.trials:
        if t.before:
            for _ in range(REPEATED):
                yield '("the same again", 0, run(*STEP))', ()
        elif t.scale != 1.0:
            words = f"the loss times {t.scale:g}, and that taken out again"
            yield f'("{words}", {told.near!r}, [first[0], *run(*STEP, times={t.scale!r})[1:]])', ()
        elif t.under == NO_GRAD:
            yield f'("without gradients", {_VALIDATION}, run(*STEP, under=torch.no_grad())[:1])', ()
        elif t.under == AUTOCAST:
            under = 'torch.autocast("cpu", torch.bfloat16)'
            yield f'("autocast", {_AUTOCAST}, [first[0], *run(*STEP, under={under})[1:]])', ()
        elif t.case.losses != told.case.losses:
            data = f"OTHER = {plain_data.losses(t.case)}"
            yield '("other values behind the mask", 0, run(*STEP[:3], OTHER))', (data,)


_LINEAR = """\
first, second, wrong = run(*STEP), run(*STEP[:3], OTHER), []
terms = [abs(weight * value) for weight, value in zip(first[1:], OTHER)]
for times in (1.0, 1024.0, 2.0**-10, 0.0):
    loss, *weights = run(*STEP[:3], [times * value for value in OTHER])
    off = any(not abs(b - a) <= {near!r} * abs(a) for a, b in zip(first[1:], weights))
    wrong.append(off or not abs(loss - times * second[0]) <= {near_sum!r} * times * sum(terms))
    print(f"losses times {{times}}: {{loss}}, weights {{weights}}{{'   <- wrong' * wrong[-1]}}")"""


def _linear(told: Told) -> Ending | None:
    other = next(t.case for t in told.trials if t.case.losses != told.case.losses)
    text = _LINEAR.format(near=told.near, near_sum=2 * told.near_sum)
    return Ending(text, (f"OTHER = {plain_data.losses(other)}",))


_INFINITE = """\
loss = run(*STEP[:3], INFINITE)[0]
wrong = [math.isfinite(loss)]
print(f"the loss is {loss}, one that is not masked infinite")"""


def _infinite(told: Told) -> Ending | None:
    [other] = [t.case for t in told.trials if t.case.losses != told.case.losses]
    data = f"INFINITE = {plain_data.losses(other)}"
    return Ending(_INFINITE, (data,), frozenset({"math"}))


_ARGUMENTS = """\
run(*STEP)
wrong = [before != after for before, after in SEEN]
print(*(text for pair in SEEN for text in pair), sep="\\n")"""


def _arguments(told: Told) -> Ending | None:
    seen = f"str((losses.tolist(), {told.calling.arguments}))"
    after = f"SEEN.append((before, {seen}))"
    return Ending(_ARGUMENTS, ("SEEN = []",), before_call=f"before = {seen}", after_call=after)


_MODES = """\
first, *others = [run(*STEP) for MODE in ({names})]
wrong = [other == first for other in others]
print(first, *others, sep="\\n")"""


def _modes(told: Told) -> Ending | None:
    if not told.modes:
        return None
    names = ", ".join(map(repr, (told.calling.mode, *told.modes)))
    return Ending(_MODES.format(names=names))


_COPIES = """\
copies = run(*STEP)[:CP]
wrong = [not max(copies) - min(copies) <= {near!r} * max(map(abs, copies))]
print(f"context-parallel ranks with all losses report {{copies}}")"""


def _copies(told: Told) -> Ending | None:
    return Ending(_COPIES.format(near=told.near_sum))


_LOGS = """\
loss, *weights = run(*STEP)
every = [None] * (DP * CP)
dist.all_gather_object(every, LOGS)
logs = [log for rank in every for log in rank]
shapes = {{str([(key, len(numbers)) for key, numbers in log.items()]) for log in logs}}
sums = [sum(column) for column in zip(*(log[KEY] for log in logs if KEY in log))]
logged = {scale} * sums[0] if len(sums) == 1 else sums and sums[0] / max(sums[1], 1)
{wanted}
wrong = [len(shapes) > 1, bool(sums) and not abs(logged - wanted) <= {near!r} * size]
print(f"logs {{shapes}}, {{KEY}} {{logged}}, which should be {{wanted}}")"""
_OF_THE_LOSS = """\
terms = [weight * value for weight, value in zip(weights, STEP[3]) if weight]
wanted, size = sum(terms), sum(map(abs, terms))"""
_LOG = """\
for log in (part for part in (out if isinstance(out, tuple) else ()) if hasattr(part, "items")):
    pairs = {key: v if isinstance(v, (list, tuple)) else torch.as_tensor(v).flatten()
             for key, v in log.items()}
    LOGS.append({key: [float(number) for number in v] for key, v in pairs.items()})"""


def _logs(told: Told) -> Ending | None:
    """Merged, a scalar as the loss is and a pair as a sum over a count."""
    if told.takes_counts:
        return None
    key, wanted = "loss", _OF_THE_LOSS
    if told.finding.logged is not None:
        key, alone = told.finding.logged
        wanted = f"wanted, size = {float(alone)!r}, {abs(float(alone))!r}  # on one rank"
    lines = _LOGS.format(scale=told.scale, near=_VALIDATION, wanted=wanted)
    return Ending(lines, ("LOGS = []", f"KEY = {key!r}"), after_return=_LOG)


_ENDINGS: Mapping[Shown, Callable[[Told], Ending | None]] = {
    Shown.WEIGHTS: _weights,
    Shown.OBJECTIVE: _objective,
    Shown.SAME: _same,
    Shown.LINEAR: _linear,
    Shown.INFINITE: _infinite,
    Shown.ARGUMENTS: _arguments,
    Shown.MODES: _modes,
    Shown.COPIES: _copies,
    Shown.LOGS: _logs,
}
