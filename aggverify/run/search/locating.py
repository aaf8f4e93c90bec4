"""Where in the reducer's code a mistake stands, for one that no formula names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from aggverify.checks import Finding
from aggverify.diagnosis import Diagnosis
from aggverify.diagnosis.localised import Spectrum, suspects
from aggverify.execution.run_spec import as_run_spec
from aggverify.model import Suspect
from aggverify.run.search.dedup import same_failure
from aggverify.run.search.drawing import drawn
from aggverify.run.search.runner import CheckRun
from aggverify.run.search.shrink_passes import smaller
from aggverify.steps.case import Case

NEAR, FAR, FAILING, LONG = 48, 48, 32, 20_000
"""At most: cases next to the smallest failing one; other drawn ones, and other stored ones; failing
ones already seen; response tokens of a step that is run once more."""
UNNAMED = "another-formula"


def located(run: CheckRun, finding: Finding, diagnosis: Diagnosis | None) -> tuple[Suspect, ...]:
    """Return the places in the code that only the failing cases took, or mostly they.

    Nothing for a cause that is named, or where the code has no conditions.
    """
    named = diagnosis is not None and diagnosis.bug is not None and diagnosis.bug.name != UNNAMED
    found = run.subject.found
    if named or finding.traits.costs_a_world or not found.conditions or run.check.only is not None:
        return ()
    cases = list(dict.fromkeys(_cases(run, finding)))
    ran = _ran(run, finding, [c for c in cases if c.step.num_response_tokens <= LONG])
    return suspects(ran, found.functions, found.conditions)


def _cases(run: CheckRun, finding: Finding) -> Iterator[Case]:
    """Yield the failing one and those next to it, which pass for the most part; others that failed.

    And some of all kinds.
    """
    space = run.space
    yield finding.case
    yield from islice((case for case in smaller(finding.case) if case in space), NEAR)
    yield from islice(
        (judged.case for judged in run.reported if same_failure(finding, judged)), FAILING
    )
    yield from drawn(run.check.draws(space), FAR, run.subject.claim.seed)
    yield from islice((case for case in run.stored_cases() if case in space), FAR)


def _ran(run: CheckRun, finding: Finding, cases: Sequence[Case]) -> list[Spectrum]:
    """Return what each case ran as it was laid out, and whether it shows this finding.

    One that shows another is left out, and one without a result.
    """
    variants = [[replace(as_run_spec(each), noted=True) for each in run.check.variants(case)]
                for case in cases]  # fmt: skip
    rest = iter(run.executor.diagnosed(run.subject, list(chain.from_iterable(variants))))
    found = []
    for each in variants:
        mine = [next(rest) for _ in each]
        judged = run.check.judge(run.subject, mine)
        if (judged is None or same_failure(finding, judged)) and all(
            e.failure is None for e in mine
        ):
            last = mine[-1]
            found.append(Spectrum(judged is not None, last.lines, last.outcomes))
    return found
