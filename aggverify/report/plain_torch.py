"""A finding without this package: a script with nothing but torch that shows the same weights."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from aggverify.checks import Finding
from aggverify.engines import Sizes
from aggverify.execution.subject import Subject
from aggverify.files import is_path, split
from aggverify.steps.layouts import token_owner

MOST_TOKENS = 64
TOLERANCE = {"float64": Fraction(1, 10**9), "float32": Fraction(1, 10**4)}
"""Relative; what is nearer than that is rounding, which takes more than a script to show."""


def script(subject: Subject, finding: Finding) -> str | None:
    """Its text; None where the weights alone do not show it, as of what takes several steps, or
    where its convention or engine has no plain form."""
    case, call = finding.case, getattr(subject.convention, "plain_call", "")
    head, _ = split(subject.target)
    layout, tolerance = case.layout, TOLERANCE.get(case.dtype)
    plain = call and is_path(head) and tolerance is not None and not subject.engine.takes_counts
    plain = plain and finding.traits.of_a_step and finding.term is None and not subject.nonlinear
    whole = all(s.original_mask is None for s in case.step.samples)
    if not plain or not whole or layout.cp_kind == "gathered" or tolerance is None:
        return None
    if len(case.losses) > MOST_TOKENS or not _shows(finding, tolerance):
        return None
    assert finding.expected is not None
    owners = token_owner(case.step, layout)
    samples = [
        (
            s.prompt_length,
            list(s.loss_mask),
            s.rollout,
            s.group,
            [c for _, c, _ in owners[start : start + s.response_length]],
        )
        for s, start in zip(case.step.samples, case.step.offsets, strict=True)
    ]
    return _template().render(
        title=f"{finding.code} {finding.traits.title}",
        file=repr(head),
        name=repr(subject.function),
        samples=samples,
        cells=[[list(cell) for cell in rank] for rank in layout.micro_batches],
        cp=layout.cp_size,
        cp_kind=repr(layout.cp_kind),
        scale=repr(float(_scale(subject, finding))),
        divisor=repr(subject.divisor),
        dtype=case.dtype,
        engine=f"engine {subject.engine.name}",
        losses=list(case.losses),
        expected=[str(weight) for weight in finding.expected],
        setup=subject.convention.plain_setup,  # type: ignore[attr-defined]
        call=call,
        tolerance=float(tolerance),
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    loader = PackageLoader("aggverify.report", "templates")
    made = Environment(loader=loader, undefined=StrictUndefined, keep_trailing_newline=True)
    return made.get_template("plain_torch.py.j2")


def _shows(finding: Finding, tolerance: Fraction) -> bool:
    """Whether the worst weight is far enough from what is expected of the step itself."""
    if finding.reference not in ("the oracle", "one rank, one micro-batch"):
        return False
    if finding.expected is None or finding.error is None or finding.token is None:
        return False
    return finding.error > 4 * tolerance * max(abs(finding.expected[finding.token]), tolerance)


def _scale(subject: Subject, finding: Finding) -> Fraction:
    """What the engine makes of one rank's loss of 1 in one micro-batch, the others' 0."""
    layout = finding.case.layout
    cells = layout.world_size * layout.num_microbatches
    sizes = Sizes(
        layout.dp_size, layout.cp_size, layout.num_microbatches, finding.case.step.num_rollouts
    )
    return subject.engine.value([Fraction(1), *[Fraction(0)] * (cells - 1)], (), sizes)
