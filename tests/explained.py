"""The smallest examples that ``aggverify explain`` shows, as the cases and subjects they are."""

from __future__ import annotations

from dataclasses import replace

from aggverify.codes import Example
from aggverify.codes.explanations import explanations
from aggverify.conventions import convention
from aggverify.execution.claim import Claim
from aggverify.execution.subject import Subject
from aggverify.generation.catalogue import plain_losses
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

EXAMPLES = [(code, example) for code, found in explanations().items() for example in found.examples]
IDS = [f"{code}-{example.check}" for code, example in EXAMPLES]


def case_of(example: Example) -> Case:
    """The example's step, layout and losses as a case."""
    step = parse_step(example.step or f"1/{'1' * example.ones}")
    samples = step.samples
    if example.groups:
        ids = zip(samples, example.groups, example.rollouts, strict=True)
        samples = tuple(replace(s, group=g, rollout=r) for s, g, r in ids)
    layout = Layout(parse_micro_batches(example.micro_batches), example.cp, example.cp_kind)  # type: ignore[arg-type]
    losses = example.losses or ((1.0,) * example.ones if example.ones else plain_losses(step))
    return Case(Step(samples), layout, losses, example.dtype)


def subject_of(example: Example) -> Subject:
    """The example's mutant under its convention, engine and mode."""
    function = example.mutant.partition(".")[2]
    how = convention(example.convention)
    subject = Subject.of(
        Claim(
            target=function,
            function=function,
            convention=example.convention,
            engine=example.engine,
            mode=example.mode or None,
            divisor=example.divisor,
            claimed=frozenset(example.claims),
            terms=example.terms,
            offered=("token_mean", "sample_mean") if how.mode_is_argument else (),
        )
    )
    if example.against is None:
        return subject
    other = example.against.partition(".")[2]
    return subject.compared_with(subject.claiming(target=other, function=other))
