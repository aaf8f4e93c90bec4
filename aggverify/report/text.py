"""The finding block and the inventory as plain lines; the terminal only adds colour."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence
from fractions import Fraction
from itertools import groupby
from pathlib import Path

from aggverify.checks import Finding
from aggverify.codes import CODES
from aggverify.diagnosis import Diagnosis, ratio
from aggverify.execution.subject import NONLINEAR, Subject
from aggverify.oracles import DEFAULT_POLICY, Policy, Sample, mode
from aggverify.oracles.bounds import PRECISIONS
from aggverify.oracles.policy import QUESTIONS
from aggverify.report.escape import clean
from aggverify.run.outcome.verdict import Margin, Relevance, ReportedFinding, Verdict
from aggverify.run.replay import Replayed
from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner

_PACKAGE = Path(__file__).parents[1]
MAX_DETAIL = 40
"""Lines of a traceback or of the ranks' stacks."""
FIXED_BOUND = (
    "margin      float64: a fixed bound of 2^-30 of the gradient's largest entry, chosen and not "
    "proven (docs/bounds.md); every change beyond 2^-29 is caught"
)
MAX_MASK = 64
"""Characters of a mask drawn at most."""
MAX_ROWS = 12
"""Samples drawn at most; a shrunk case has one or two."""


def header(subject: Subject, *, identified: bool = False) -> list[str]:
    """Who is verified, and how: one fact a line."""
    mode = subject.mode_name or "none recognised: invariance only"
    if subject.nonlinear:
        mode = f"{NONLINEAR}: no oracle, the same value and gradient in every layout"
    if subject.mode == "constant":
        mode += f" (divisor {subject.divisor:g})"
    if identified:
        mode += "  [identified]"
    return [
        f"reducer     {clean(subject.target)} · {subject.function}",
        f"convention  {subject.convention.name} ({subject.convention.title})",
        f"engine      {subject.engine.name}{_default_mark(subject)} ({subject.engine.title})",
        f"mode        {mode}",
    ]


def _default_mark(subject: Subject) -> str:
    default = subject.convention.default_engine(subject.mode)
    return f" [{subject.convention.name}'s default]" if subject.engine.name == default else ""


def finding_block(reports: Sequence[ReportedFinding], subject: Subject, number: int) -> list[str]:
    """One numbered root cause as a person reads it: its first case, and every check it breaks."""
    report, *others = reports
    finding, code = report.finding, CODES[report.finding.code]
    lines = [
        f"{number}. Case {report.stored.id}",
        f"- {code.code} {code.title}    [{code.severity}]",
    ]
    for other in others:
        also = CODES[other.finding.code]
        lines.append(f"- {also.code} {also.title}    [{also.severity}]  case {other.stored.id}")
    lines += [f"    {line}" for line in _body(finding, subject)]
    lines += [f"    {line}" for line in _explanation(report.diagnosis, finding)]
    lines += [f"    {line}" for line in _relevance(report.relevance)]
    if not report.confirmed:
        lines.append(
            "    seen once, not again in a fresh world: the reducer keeps state or guesses"
        )
    codes = " ".join(dict.fromkeys(r.finding.code for r in reports))
    lines.append(f"Reproduce:  {_command(report, subject)}")
    lines.append(f"Explain:    aggverify explain {codes}")
    return lines


def _command(report: ReportedFinding, subject: Subject) -> str:
    paths = subject.against if report.finding.traits.compares_paths else None
    stored = report.stored
    against = None if paths is None else paths.target
    return clean(replay_command(stored.id, stored.target, oracle=stored.oracle, against=against))


def replay_command(case: str, target: str, *, oracle: str | None, against: str | None) -> str:
    """What runs a stored case again, safe to paste into a shell."""
    said = {"--oracle": oracle, "--against": against}
    options = [word for name, value in said.items() if value is not None for word in (name, value)]
    return shlex.join(["aggverify", "replay", case, target, *options])


def _body(finding: Finding, subject: Subject) -> Iterator[str]:
    if finding.message:
        yield from clean(finding.message).splitlines()
    yield from _weights(finding)
    if finding.error is not None and finding.bound is not None:
        precision = min(finding.case.dtype, subject.computes_in, key=lambda n: PRECISIONS[n].p)
        yield (
            f"error {float(finding.error):.3g}, bound {float(finding.bound):.2g} "
            f"({precision}, {'fixed' if subject.nonlinear else f'{subject.roundings} roundings'})"
        )
    yield from drawing(finding.case)
    if finding.detail:
        yield ""
        yield from own_frames(clean(finding.detail))[:MAX_DETAIL]


def own_frames(detail: str) -> list[str]:
    """Stacks or a traceback without the frames of this package and of the interpreter's start."""
    ours = tuple(f'File "{where}' for where in (f"{_PACKAGE}/", "<frozen "))
    return [line for line in detail.rstrip().split("\n") if not line.lstrip().startswith(ours)]


def _weights(finding: Finding) -> Iterator[str]:
    """Expected and observed weight of the worst token."""
    token = finding.token
    if token is None or finding.expected is None or finding.observed is None:
        return
    expected, observed = finding.expected[token], finding.observed[token]
    yield f"weight of {token_name(finding.case, token)}"
    yield f"  expected  {fraction(expected)}    ({finding.reference})"
    factor = ratio(expected, observed) if observed == observed else None
    told = f"    = expected x {fraction(factor)}" if factor is not None else ""
    yield f"  actual    {number(observed)}{told}"


def _explanation(diagnosis: Diagnosis | None, finding: Finding) -> Iterator[str]:
    if diagnosis is None:
        yield from _unexplained(finding)
        return
    if diagnosis.factor:
        yield f"factor: {diagnosis.factor}"
    bug = diagnosis.bug
    if bug is None:
        yield f"you compute: {diagnosis.sentence}   (no historic bug is known to be this)"
        return
    yield f"you compute: {bug.sentence}   ({bug.seen})"
    for other in diagnosis.also:
        yield f"        and: {other.sentence}   ({other.seen})"
    if bug.sentence != diagnosis.sentence:
        yield f"in detail: {diagnosis.sentence}"
    for fix in dict.fromkeys(b.fix for b in (bug, *diagnosis.also)):
        yield f"usual fix: {fix}"


def _unexplained(finding: Finding) -> Iterator[str]:
    """That nothing matches, with every weight there is to see."""
    if finding.token is None or finding.expected is None or finding.observed is None:
        return
    yield "not recognised: no known factor, formula or historic bug gives these weights"
    if len(finding.observed) < 2:
        return  # shown above
    pairs = zip(finding.expected, finding.observed, strict=True)
    rows = [(key, list(run)) for key, run in groupby(enumerate(pairs), key=lambda row: row[1])]
    for (expected, observed), run in rows[:MAX_ROWS]:
        name = token_name(finding.case, run[0][0])
        more = f" and {len(run) - 1} more" if len(run) > 1 else ""
        yield f"  {name}{more}: expected {fraction(expected)}, actual {number(observed)}"
    if len(rows) > MAX_ROWS:
        yield f"  … and {sum(len(run) for _, run in rows[MAX_ROWS:])} more tokens"


def _relevance(found: Relevance) -> Iterator[str]:
    if found.matters:
        yield f"matters: {', '.join(found.matters)}"
    if found.irrelevant:
        yield f"does not matter: {', '.join(found.irrelevant)}"


def fraction(value: Fraction) -> str:
    """A fraction as ``3/8``; one too long to read as a decimal."""
    text = str(value)
    return text if len(text) <= 24 else f"{float(value):.17g}"


def number(value: float) -> str:
    """An observed weight as the simple fraction it rounds, else as a decimal."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    simple = Fraction(value).limit_denominator(10**6)
    if abs(float(simple) - value) <= 1e-12 * abs(value):
        return str(simple)
    return f"{value:.17g}"


def token_name(case: Case, token: int) -> str:
    """``sample 1, response token 0`` for a flat index."""
    step = case.step
    sample = max(i for i, start in enumerate(step.offsets) if start <= token)
    return f"sample {sample}, response token {token - step.offsets[sample]}"


def drawing(case: Case) -> Iterator[str]:
    """The step, one line a sample: prompt as ``··``, mask as ``#.``, owner of each token below."""
    step, layout = case.step, case.layout
    yield (
        f"step: {_count(step.num_groups, 'prompt')}, {_count(step.num_rollouts, 'rollout')}, "
        f"{_count(len(step.samples), 'sample')}; dp={layout.dp_size} cp={layout.cp_size}"
        f"{f' ({layout.cp_kind})' if layout.cp_size > 1 else ''} "
        f"micro-batches={layout.num_microbatches} dtype={case.dtype}"
    )
    owner = token_owner(step, layout) if layout.cp_size > 1 else None
    cell = {i: (d, k) for d, k, members in layout.cells() for i in members}
    for i, sample in list(enumerate(step.samples))[:MAX_ROWS]:
        d, k = cell[i]
        start, length = step.offsets[i], sample.response_length
        ranks = None if owner is None else [c for _, c, _ in owner[start : start + length]]
        yield (
            f"  rank dp{d} micro-batch {k}  prompt {'·' * min(sample.prompt_length, 12)}"
            f"{'…' if sample.prompt_length > 12 else ''}  mask {_mask(sample, ranks)}"
            f"  (prompt group {sample.group}, rollout {sample.rollout})"
        )
    if layout.cp_size > 1 and layout.cp_kind != "gathered":
        yield "  (| = context-parallel rank boundary)"
    if any(s.num_original != s.num_unmasked for s in step.samples):
        yield "  (x = rejected after the fact)"
    if len(step.samples) > MAX_ROWS:
        yield f"  … and {len(step.samples) - MAX_ROWS} more samples"


def _mask(sample: Sample, ranks: Sequence[int] | None) -> str:
    mask, original = sample.loss_mask, sample.original_mask or sample.loss_mask
    if len(mask) > MAX_MASK:
        head, tail = slice(0, MAX_MASK // 2), slice(-MAX_MASK // 4, None)
        shown = f"{_bits(mask[head], original[head])}…{_bits(mask[tail], original[tail])}"
        return f"{shown} ({len(mask)} tokens)"
    bits = _bits(mask, original)
    if ranks is None:
        return bits
    cuts = ["|" if t and rank != ranks[t - 1] else "" for t, rank in enumerate(ranks)]
    return "".join(map("".join, zip(cuts, bits, strict=True)))


def _bits(mask: bytes, original: bytes) -> str:
    """``#`` unmasked, ``x`` rejected after the fact, ``.`` masked from the start."""
    pairs = zip(mask, original, strict=True)
    return "".join("#" if bit else "x" if counted else "." for bit, counted in pairs)


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def inventory(verdict: Verdict) -> list[str]:
    """What was tested, green or not: checks, cases, worlds, margins, what was left out."""
    lines = []
    for check in verdict.checks:
        state = "failed" if check.failed else check.skipped or "ok"
        state += f" ({clean(check.refused)})" if check.refused else ""
        cases = f"{check.cases:5} cases" if check.cases else " " * 11
        lines.append(f"{check.tests:4}{check.name:40}{cases}   {state}")
    lines += [f"established {c.established}" for c in verdict.checks if c.established]
    worlds = ", ".join(f"{n} on {w}" for w, n in verdict.worlds if n)
    lines.append(f"executed    {verdict.executed} steps ({worlds} ranks), seed {verdict.seed}")
    for m in verdict.margins:
        lines += _margin(m)
    if verdict.subject.nonlinear:
        lines.append(FIXED_BOUND)
    lines += [f"warning     {w.code} {CODES[w.code].title}: {w.detail}" for w in verdict.weaknesses]
    subject = verdict.subject
    if subject.computes_in != "float64":
        lines.append(
            f"note        the reducer computes in {subject.computes_in} whatever its input"
        )
    lines += [f"note        {note}" for note in subject.notes]
    asked = mode(subject.mode).asks if subject.mode and not subject.oracle else ()
    lines += _policy(subject.policy, asked)
    for feature, reason in subject.convention.not_claimed.items():
        if feature not in subject.claimed:
            lines.append(f"not claimed {feature}: {reason}  (--claim {feature})")
    return lines


def _policy(policy: Policy, asked: Collection[str]) -> Iterator[str]:
    """Each open question of the mode with its reading, and whether that was declared."""
    for line in policy.describe(asked):
        name, _, reading = line.partition(": ")
        declared = getattr(policy, name) != getattr(DEFAULT_POLICY, name)
        how = "declared" if declared else "default"
        yield f"policy      {name} = {reading}  [{how}]  {QUESTIONS[name]}"


def _margin(m: Margin) -> Iterator[str]:
    """How close right results came to their bound, and what would have been caught."""
    within = f"{m.dtype}: weights within {m.worst:.2f} of their bound"
    yield f"margin      {within}; {_caught(m)} is caught"
    if m.dense_steps:
        vacuous = f", vacuous on {m.vacuous_steps}" if m.vacuous_steps else ""
        yield (
            f"            reported loss: beyond {m.sparse_caught:.1g} with one loss alone, "
            f"{m.dense_caught:.1g} at best on {m.dense_steps} dense steps{vacuous}"
        )


def _caught(m: Margin) -> str:
    if m.smallest_caught == float("inf"):
        return "the bound is vacuous: no factor"
    return f"every factor further from 1 than {m.smallest_caught:.1g}"


def headline(verdict: Verdict) -> str:
    """The verdict in one line."""
    ran = [c for c in verdict.checks if c.cases]
    if verdict.reports:
        failed = [c for c in ran if c.failed]
        causes = _count(len(verdict.causes), "finding")
        return f"{causes} ({_count(len(failed), 'check')} of {len(ran)} failed)"
    if not verdict.executed:
        return "nothing was tested"
    if verdict.subject.nonlinear:
        what = f"{NONLINEAR} (one value and gradient in every layout)"
    else:
        what = verdict.subject.mode_name or "the same step scalar in every layout (no known mode)"
    passed = f"conforms: {what}, {_count(len(ran), 'check')} passed, 0 findings"
    return f"{passed}, {_count(len(verdict.weaknesses), 'warning')}"


def replay_lines(result: Replayed) -> list[str]:
    """FIXED or FAILED, and what is left of the finding."""
    code = CODES[result.stored.code]
    if result.finding is None:
        return [f"FIXED   case {result.stored.id}: {code.code} {code.title}"]
    found = CODES[result.finding.code]
    other = "" if found is code else f" (was {code.code})"
    lines = [f"FAILED  case {result.stored.id}: {found.code} {found.title}{other}"]
    return lines + [f"    {line}" for line in _body(result.finding, result.subject)]
