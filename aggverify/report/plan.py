"""A plan as a table: what would be run on which layouts, and why anything is not."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify import escape
from aggverify.generation.space import WORLDS, Space, sizes
from aggverify.report.view_model import state_name
from aggverify.run.outcome.events import Phase
from aggverify.run.planning.plan import Plan, PlannedCheck


def plan_lines(plan: Plan) -> Iterator[str]:
    """One subject's checks in their order."""
    subject, found = plan.subject, plan.subject.found
    mode = subject.mode_name or subject.claim.mode or "no known mode"
    how = f"{subject.convention.name} convention, engine {subject.engine.name}"
    source = "  [identified]" if found.identified else ""
    yield escape.line(f"{subject.target} · {subject.function} · {mode}{source} · {how}")
    yield from (escape.line(f"note        {note}") for note in found.notes)
    width = max(len(entry.check.name) for entry in plan.entries)
    for entry in plan.entries:
        yield f"{entry.check.tests:3} {entry.check.name:{width}}  {escape.line(_what(entry))}"
    planned = sum(entry.instead is None for entry in plan.entries)
    budget = subject.claim.budget
    # Special checks are limited only where a person asks for it.
    stream = "" if budget.max_time is not None else "the stream takes "
    yield (
        f"{planned} of {len(plan.entries)} checks; {stream}at most {budget.seconds:g} s, "
        f"seed {subject.claim.seed}; what checks find may leave later ones out"
    )


def _what(entry: PlannedCheck) -> str:
    if entry.instead is not None:
        return f"- {state_name(entry.instead)}" + (f": {entry.why_not}" if entry.why_not else "")
    drawn = f"{Phase.STREAM}, up to {entry.examples} drawn"
    cases = drawn if entry.check.only is None else f"{Phase.SPECIAL}, all its cases"
    return cases if entry.space is None else f"{cases}, {layouts(entry.space)}"


def layouts(space: Space) -> str:
    """Return the largest sizes of a space that there are layouts for."""
    found = sizes(space)
    if space.max_world > max(WORLDS):  # cases of a check's own: nothing is drawn of such worlds
        dp, cp, k = space.max_dp, space.max_cp, space.max_microbatches
        found = tuple((dp, cp, k, kind) for kind in space.cp_kinds)
    dp, cp, micro_batches, ranks = (
        max(values) for values in zip(*((d, c, k, d * c) for d, c, k, _ in found), strict=True)
    )
    if ranks == micro_batches == 1:
        return "one rank, one micro-batch"
    kinds = f" ({', '.join(dict.fromkeys(kind for _, c, _, kind in found if c > 1))})"
    return (
        f"dp ≤ {dp}, cp ≤ {cp}{kinds if cp > 1 else ''}, micro-batches ≤ {micro_batches}, "
        f"ranks ≤ {min(ranks, space.max_world)}"
    )
