"""A finding without this package: a script with nothing but torch that shows the same.

It runs the finding's step on its layout as the convention and the engine do, in at most 30 lines
beside the step's data and what imports the reducer, and ends with 1 until the reducer is mended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from aggverify.checks import Check, Finding, check, logs, merged_logs
from aggverify.checks.comparison import lowest_precision
from aggverify.conventions import Calling, PlainlyCalled, PlainSite, calls_bound
from aggverify.engines import TRAIN_STEP, Sizes
from aggverify.execution.laboratory import DIVISOR
from aggverify.execution.subject import Subject
from aggverify.execution.trial import Trial, trial
from aggverify.files import split
from aggverify.oracles.bounds import PRECISIONS, relative, scalar_bound
from aggverify.oracles.coincidence import tells_apart
from aggverify.report import plain_data
from aggverify.report.escape import line
from aggverify.report.plain_calls import called
from aggverify.report.plain_ends import ending
from aggverify.report.plain_source import functions, imports
from aggverify.report.plain_told import Told
from aggverify.steps.case import Case

MOST_TOKENS, MOST_LINES = 10_000, 30


@dataclass(frozen=True, slots=True)
class Script:
    """Its text, or why there is none, as what follows "because"."""

    text: str | None = None
    why_not: str | None = None


def script(subject: Subject, finding: Finding) -> Script:
    """The script of a finding."""
    if (text := called(subject, finding)) is not None:
        return Script(text)
    how = check(finding.check)
    why_not = _why_not(subject, how, finding)
    if why_not is not None:
        return Script(why_not=why_not)
    told = _told(subject, how, finding)
    if (end := ending(told)) is None:
        return Script(why_not="rounding in a script may be as large as what is wrong")
    body = _template().render(t=told, ending=end)
    if (lines := _lines(told, body)) > MOST_LINES:
        return Script(why_not=f"it takes {lines} lines, which is more than one reads")
    return Script(_imports(told, body) + body)


_MODULES = (
    "copy",
    "faulthandler",
    "functools",
    "importlib",
    "inspect",
    "math",
    "operator",
    "os",
    "runpy",
    "sys",
)


def _imports(told: Told, body: str) -> str:
    """The first lines: what it shows, how it is run, what it takes."""
    used = [name for name in _MODULES if re.search(rf"\b{name}\.", body)]
    lines = [f"import {', '.join(used)}", *told.calling.imports]
    lines += ["from contextlib import nullcontext"] * told.varied
    lines += ["from types import SimpleNamespace"] * ("SimpleNamespace" in body)
    lines += ["", "import torch", "import torch.distributed as dist"]
    lines += ["import torch.testing._internal.distributed.fake_pg"] * told.virtual
    lines += ["from torch import tensor", "", ""]
    how = f"# With torch alone; it ends with 1 until that is mended:  {told.command}"
    return "\n".join([f"# {told.title}", how, *lines])


def _lines(told: Told, body: str) -> int:
    """All but imports, the step's data, an adapter's own code and what imports the candidate."""
    code = told.calling.code + body[body.index("\ndist.init_process_group") :]
    importing = 3 + told.is_file + 3 * bool(told.owner)
    return sum(map(bool, code.split("\n"))) + told.guarded - importing


@lru_cache(maxsize=1)
def _template() -> Template:
    loader = PackageLoader("aggverify.report", "templates")
    made = Environment(
        loader=loader, undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    return made.get_template("plain_torch.py.j2")


def _why_not(subject: Subject, how: Check, finding: Finding) -> str | None:
    """What keeps a script from showing it at all."""
    if not isinstance(subject.convention, PlainlyCalled):
        return f"the convention {subject.convention.name} does not say how it calls without us"
    if _scale(subject, finding.case) is None:
        return f"the engine {subject.engine.name} does more than scale losses and add them up"
    if subject.engine == TRAIN_STEP and imports(split(subject.target)[0], "megatron"):
        return "Megatron-core takes a GPU without us"
    if (takes := how.not_shown.get(finding.code)) is not None:
        return f"it takes {takes}"
    if merged_logs.applies(subject) and finding.check == logs.NAME:
        return "the adapter's own function merges what is logged"
    if len(finding.case.losses) > MOST_TOKENS:
        return f"its step has {len(finding.case.losses):,} tokens"
    return None


def _told(subject: Subject, how: Check, finding: Finding) -> Told:
    case, roundings = finding.case, 2 * subject.roundings
    shown = (replace(t, case=subject.shown(t.case)) for t in map(trial, how.variants(case)))
    trials = [t for t in shown if _is_of(t, case)]
    precision = PRECISIONS[lowest_precision(subject, case)]
    before = max((t.before for t in trials), key=len, default=())
    expected = finding.expected or subject.expected(case.step)
    scale = _scale(subject, case)
    assert scale is not None
    head, _ = split(subject.target)
    site = _site(subject, case, trials, finding.elsewhere)
    others = dict.fromkeys(step for t in trials for step in t.before if step != case)
    calling = _calling(subject, site)
    return Told(
        title=line(f"{finding.code} {finding.traits.title}: {subject.target}"),
        shown=how.shown_by.get(finding.code, how.shown),
        case=case,
        trials=tuple(trials),
        before=before,
        target=head,
        function=subject.function,
        owner=subject.function.rpartition(".")[0] * calls_bound(subject.convention),
        calling=calling,
        others=tuple(_run(subject, replace(site, case=other)) for other in others),
        counts_rejected=subject.policy.denominators == "original",
        virtual=bool(finding.elsewhere),
        parameters=subject.convention.parameters,
        misuse=next((m for m in subject.convention.misuses if m.name in finding.calls), None),
        modes=tuple(_modes(subject, site, calling, trials)),
        engine=subject.engine.name,
        scale=float(scale),
        takes_counts=subject.engine.takes_counts,
        guarded=finding.traits.costs_a_world,
        expected=expected,
        finding=finding,
        near=float(relative(roundings, precision)) + 2.0**-50,
        least=float(finding.bound or 0) if subject.nonlinear else _least(subject, case),
        near_sum=float(scalar_bound(Fraction(1), len(case.losses), roundings + 2, precision)),
    )


def _is_of(one: Trial, case: Case) -> bool:
    """Whether ranks of the case's layout can run it."""
    return one.case.step == case.step and one.case.layout == case.layout


def _least(subject: Subject, case: Case) -> float:
    """What underflow may add."""
    precision = PRECISIONS[lowest_precision(subject, case)]
    return float(2 * subject.roundings * precision.min_subnormal)


def _site(subject: Subject, case: Case, trials: list[Trial], elsewhere: int) -> PlainSite:
    term = next((t.term for t in trials if t.term is not None), None)
    divisor = None if subject.divisor is None else float(subject.divisor)
    per_token, terms = subject.engine.takes_counts, len(subject.terms)
    return PlainSite(
        case,
        subject.claim.mode,
        divisor,
        per_token,
        subject.policy.denominators == "original",
        terms,
        term if terms else None,
        functions(split(subject.target)[0], subject.function),
        elsewhere,
        "generations" in subject.features,
    )


def _run(subject: Subject, site: PlainSite) -> str:
    """Another step, as arguments of a run."""
    calling, case = _calling(subject, site), site.case
    counted = subject.policy.denominators == "original"
    counts = plain_data.counts(case, counted) if subject.engine.takes_counts else None
    cells = plain_data.cells(case, calling, counts)
    return f"({plain_data.losses(case)}, {calling.told.step}, {cells})"


def _calling(subject: Subject, site: PlainSite) -> Calling:
    assert isinstance(subject.convention, PlainlyCalled)
    return subject.convention.plain(site)


def _modes(
    subject: Subject, site: PlainSite, calling: Calling, trials: list[Trial]
) -> Iterator[str | bool]:
    """Names of other modes that weigh this step in another way, and whose call is the same."""
    for mode in (t.mode for t in trials if t.mode in subject.offered):
        if mode is None or subject.mode is None or mode == subject.mode:
            continue
        both = (subject.mode, mode)
        divisor = float(subject.divisor or DIVISOR)
        if not tells_apart(site.case.step, both, divisor=divisor, policy=subject.policy):
            continue
        other = _calling(subject, replace(site, mode=mode))
        if other.call == calling.call and other.mode is not None:
            yield other.mode


def _scale(subject: Subject, case: Case) -> Fraction | None:
    """What the engine makes of one rank's loss of 1 in one micro-batch, the others' 0, where tokens
    are not counted; None where it is none that does just that."""
    engine, sizes = subject.engine, Sizes.of(case)
    cells = case.layout.world_size * case.layout.num_microbatches

    def of(*losses: int, tokens: int = 1) -> Fraction:
        given = [Fraction(loss) for loss in losses] + [Fraction(0)] * (cells - len(losses))
        return engine.value(given, [tokens] * cells, sizes)

    one = of(1) * (cells if engine.takes_counts else 1)
    same = of(3) == 3 * of(1) and of(*[1] * cells) == cells * of(1)
    plain = engine.counted([0], None) == 0 and of(1, tokens=2) * (1 + engine.takes_counts) == of(1)
    return one if same and plain else None
