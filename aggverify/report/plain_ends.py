"""What a script makes of its runs: each way in which right and wrong are told apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from aggverify.checks.base import Shown
from aggverify.codes import Effect
from aggverify.conventions.plain_text import row
from aggverify.report import plain_data
from aggverify.report.plain_told import Told
from aggverify.trainer.torch_modes import AUTOCAST, NO_GRAD


@dataclass(frozen=True, slots=True)
class Ending:
    """Lines that leave ``wrong``, and what they need of the rest."""

    lines: str
    data: tuple[str, ...] = ()
    before_import: str = ""
    before_call: str = ""
    after_call: str = ""
    after_return: str = ""


def ending(told: Told) -> Ending | None:
    """The end of the script; None where rounding may hide what is wrong."""
    return _ENDINGS[told.shown](told)


_WEIGHTS = """\
loss, *weights = run()
by = [({near!r} * abs(e) + {least!r}) * (e != 0) for e in EXPECTED]
wrong = [not abs(a - e) <= m for a, e, m in zip(weights, EXPECTED, by)]{not_finite}
for expected, actual, off in zip(EXPECTED, weights, wrong):
    print(f"expected {{expected}}, actual {{actual}}{{'   <- wrong' * off}}")"""


def _weights(told: Told) -> Ending | None:
    """Against the expected ones, after any steps before; the loss must be a number, too."""
    if not _is_clear(told):
        return None
    finite = all(map(math.isfinite, told.case.losses)) and not told.calling.whole
    not_finite = " + [not abs(loss) < math.inf]" if finite else ""
    lines = _WEIGHTS.format(near=told.near, least=told.least, not_finite=not_finite)
    data = [f"EXPECTED = {row(told.wanted)}"]
    if told.before:
        lines, steps = _after(told, lines)
        data.append(steps)
    return Ending(lines, tuple(data))


def _after(told: Told, lines: str) -> tuple[str, str]:
    """The step after others; where it is also to be run many times, whatever run is not as the
    first of them."""
    often = max(t.before.count(told.case) for t in told.trials)
    first = "" if told.expected else "EXPECTED = run()[1:]\n"
    if often:
        rows = f"rows = [run() for _ in range({often + 1})]"
        other = "loss, *weights = next((row for row in rows if row != rows[0]), rows[0])"
        lines = lines.replace("loss, *weights = run()", f"{rows}\n{other}", 1)
    steps = ",\n          ".join(told.others)
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
loss, *weights = run()
terms = [weight * value for weight, value in zip(weights, LOSSES) if weight]
wrong = [not abs(loss - math.fsum(terms)) <= {near!r} * math.fsum(map(abs, terms))]
print(f"the loss is {{loss}}, the sum of weights times losses {{math.fsum(terms)}}")"""


def _objective(told: Told) -> Ending | None:
    found = told.finding
    if found.observed is not None and found.error is not None:
        pairs = zip(found.observed, told.case.losses, strict=True)
        terms = math.fsum(abs(weight * value) for weight, value in pairs if weight)
        if found.error <= 2 * Fraction(told.near_sum * terms):
            return None
    return Ending(_OBJECTIVE.format(near=told.near_sum))


_SAME = """\
first, wrong = run(), []
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
                yield '("the same again", 0, run())', ()
        elif t.scale != 1.0:
            words = f"backward of {t.scale:g} * loss"
            yield f'("{words}", {told.near!r}, [first[0], *run(times={t.scale!r})[1:]])', ()
        elif t.under == NO_GRAD:
            yield f'("without gradients", {_VALIDATION}, run(under=torch.no_grad())[:1])', ()
        elif t.under == AUTOCAST:
            under = 'torch.autocast("cpu", torch.bfloat16)'
            yield f'("autocast", {_AUTOCAST}, [first[0], *run(under={under})[1:]])', ()
        elif t.case.losses != told.case.losses:
            data = f"OTHER = {plain_data.losses(t.case)}"
            yield '("other values behind the mask", 0, run(OTHER))', (data,)


_SAME_LOGS = """\
run()
{first}
LOGS.clear()
run(OTHER)
{second}
wrong = [str(was) != str(now) for was, now in zip(first, second)]
print(*(f"logged {{was}}, with other values behind the mask {{now}}"
        for was, now, off in zip(first, second, wrong) if off), sep="\\n")"""


def _same_logs(told: Told) -> Ending:
    """What every rank and micro-batch logs; the last trials have NaN there."""
    finite = told.finding.traits.effect is not Effect.HAZARD
    others = [t.case for t in told.trials if t.case.losses != told.case.losses]
    lines = _SAME_LOGS.format(
        first=_of_all_ranks(told, "[*LOGS]", "first"), second=_of_all_ranks(told, "LOGS", "second")
    )
    data = ("LOGS = []", f"OTHER = {plain_data.losses(others[0 if finite else -1])}")
    return Ending(lines, data, after_return=_LOG)


_LINEAR = """\
first, second, wrong = run(), run(OTHER), []
terms = [abs(weight * value) for weight, value in zip(first[1:], OTHER)]
for times in {factors}:
    loss, *weights = run([times * value for value in OTHER])
    off = any(not abs(b - a) <= {near!r} * abs(a) for a, b in zip(first[1:], weights))
    near = {near_sum!r} * times * sum(terms)
    wrong.append(off or not abs(loss - times * second[0]) <= near)
    print(f"losses times {{times}}: {{loss}}, weights {{weights}}{{'   <- wrong' * wrong[-1]}}")"""


def _linear(told: Told) -> Ending | None:
    other = next(t.case for t in told.trials if t.case.losses != told.case.losses)
    factors = "(1.0, 1024.0, 2.0**-10, 0.0)" if told.calling.zeros else "(1.0, 1024.0, 2.0**-10)"
    text = _LINEAR.format(near=told.near, near_sum=2 * told.near_sum, factors=factors)
    return Ending(text, (f"OTHER = {plain_data.losses(other)}",))


_INFINITE = """\
loss = run(INFINITE)[0]
wrong = [math.isfinite(loss)]
print(f"the loss is {loss}, one that is not masked infinite")"""


def _infinite(told: Told) -> Ending | None:
    [other] = [t.case for t in told.trials if t.case.losses != told.case.losses]
    data = f"INFINITE = {plain_data.losses(other)}"
    return Ending(_INFINITE, (data,))


_ARGUMENTS = """\
run()
{gathered}
wrong = [before != after for before, after in seen]
print(*(text for pair in seen for text in pair), sep="\\n")"""


def _arguments(told: Told) -> Ending | None:
    seen = f"str((losses.tolist(), {told.calling.arguments}))"
    after = f"SEEN.append((before, {seen}))"
    lines = _ARGUMENTS.format(gathered=_of_all_ranks(told, "SEEN", "seen"))
    return Ending(lines, ("SEEN = []",), before_call=f"before = {seen}", after_call=after)


_MODES = """\
rows = []
for MODE in ({names}):
    rows.append(run())
wrong = [other == rows[0] for other in rows[1:]]
print(*rows, sep="\\n")"""


def _modes(told: Told) -> Ending | None:
    if not told.modes:
        return None
    names = ", ".join(map(repr, (told.calling.mode, *told.modes)))
    return Ending(_MODES.format(names=names))


_COPIES = """\
copies = run()[:{cp}]
wrong = [not max(copies) - min(copies) <= {near!r} * max(map(abs, copies))]
print(f"context-parallel ranks with all losses report {{copies}}")"""


def _copies(told: Told) -> Ending | None:
    return Ending(_COPIES.format(near=told.near_sum, cp=told.cp))


_LOGS = """\
loss, *weights = run()
{gathered}
sums = [sum(column) for column in zip(*(log[KEY] for log in logs if KEY in log))]
logged = {scale} * sums[0] if len(sums) == 1 else sums and sums[0] / max(sums[1], 1)
{wanted}
wrong = [bool(sums) and not abs(logged - wanted) <= {near!r} * size]
print(f"{{KEY}} is {{logged}} in the logs, which should be {{wanted}}")"""
_SHAPES = """\
run()
{gathered}
shapes = {{str({{key: len(numbers) for key, numbers in log.items()}}) for log in logs}}
wrong = [len(shapes) > 1]
print("numbers by key:", *shapes)"""
_OF_ALL_RANKS = """\
dist.all_gather_object(every := [None] * {world}, {own})
{name} = sum(every, [])"""
_OF_THE_LOSS = """\
terms = [weight * value for weight, value in zip(weights, LOSSES) if weight]
wanted, size = sum(terms), sum(map(abs, terms))"""
_LOG = """\
for log in (part for part in more if hasattr(part, "items")):
    numbers = {key: torch.as_tensor(n, dtype=torch.float64) for key, n in log.items()}
    LOGS.append({key: n.flatten().tolist() for key, n in numbers.items()})"""


def _of_all_ranks(told: Told, own: str = "LOGS", name: str = "logs") -> str:
    if told.world == 1 or told.virtual:
        return f"{name} = {own}"
    return _OF_ALL_RANKS.format(world=told.world, own=own, name=name)


def _shapes(told: Told) -> Ending:
    return Ending(_SHAPES.format(gathered=_of_all_ranks(told)), ("LOGS = []",), after_return=_LOG)


def _logs(told: Told) -> Ending | None:
    """Merged, a scalar as the loss is and a pair as a sum over a count."""
    if told.takes_counts:
        return None
    key, wanted = "loss", _OF_THE_LOSS
    if told.finding.logged is not None:
        key, alone = told.finding.logged
        wanted = f"wanted, size = {float(alone)!r}, {abs(float(alone))!r}  # on one rank"
    gathered = _of_all_ranks(told)
    lines = _LOGS.format(scale=told.scale, near=_VALIDATION, wanted=wanted, gathered=gathered)
    return Ending(lines, ("LOGS = []", f"KEY = {key!r}"), after_return=_LOG)


_HELD = """\
def held(collective, given, *args, async_op=False, **how):  # on a copy, until somebody waits
    collective(made := given.detach().clone(), *args, **how)
    arrive = lambda *_: given.data.copy_(made) is not None
    early = arrive() if not async_op or dist.early else None
    return SimpleNamespace(wait=arrive, is_completed=arrive) if async_op else None
for name in ("all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor"):
    setattr(dist, name, functools.partial(held, getattr(dist, name)))"""
_LATE = """\
early, late = [run() for dist.early in (True, False)]
wrong = [early != late]
print(f"with results that come at once {early}, when they are waited for {late}")"""


def _late(told: Told) -> Ending:
    """Each of a world's first runs would also make the engine's own reduction: it waits."""
    return Ending(_LATE, before_import=_HELD)


_REFUSED = """\
def reduce(*args, call=reduce, **named):
    given = dict(zip(NAMES, args)) | named
    {line}
    return call(*[given.pop(name) for name in NAMES[: len(args)]], **given)


try:
    told, wrong = f"accepted: {{MISUSE}}; the loss is {{run()[0]}}   <- wrong", [True]
except (Exception, SystemExit) as error:
    told, wrong = f"refused: {{error!r}}", []
print(told)"""


def _refused(told: Told) -> Ending | None:
    """Only the first that is accepted: the others are in the finding."""
    if told.misuse is None or not told.misuse.line:
        return None
    lines, data = _REFUSED.format(line=told.misuse.line), f"MISUSE = {told.misuse.sentence!r}"
    if told.parameters:
        return Ending(lines, (data, f"NAMES = {list(told.parameters)}"))
    return Ending(f"NAMES = [*inspect.signature(reduce).parameters]\n\n\n{lines}", (data,))


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
    Shown.SAME_LOGS: _same_logs,
    Shown.SHAPES: _shapes,
    Shown.LATE: _late,
    Shown.REFUSED: _refused,
}
