"""What an auxiliary term is by design, where that is no mean over the step: its exact weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from aggverify.steps.case import Case
from aggverify.steps.layouts import token_owner


@dataclass(frozen=True, slots=True)
class TermReading:
    """A mean over the unmasked tokens of a place, then over all places, those without any too."""

    sentence: str
    shards: bool
    """Whether each context-parallel rank is its own place."""

    def weights(self, case: Case) -> tuple[Fraction, ...]:
        """One per response token, for a coefficient of 1."""
        layout = case.layout
        # Of gathered losses every rank has all, and goes backward through its own.
        apart = self.shards and layout.cp_kind != "gathered"
        places = layout.dp_size * layout.num_microbatches * (layout.cp_size if self.shards else 1)
        owners = [(d, apart and c, k) for d, c, k in token_owner(case.step, layout)]
        mask = b"".join(sample.loss_mask for sample in case.step.samples)
        counts = Counter(own for own, bit in zip(owners, mask, strict=True) if bit)
        return tuple(
            Fraction(1, counts[own] * places) if bit else Fraction(0)
            for own, bit in zip(owners, mask, strict=True)
        )


TERM_READINGS: Mapping[str, TermReading] = {
    "micro_batch_mean": TermReading(
        "a mean over the tokens that a rank has in a micro-batch, averaged over all of these", True
    ),
    "whole_micro_batch_mean": TermReading(
        "a mean over the tokens of a micro-batch, of all its shards, averaged over all of these",
        False,
    ),
}


def with_reading(name: str, reading: str) -> str:
    """As a claim has it."""
    return f"{name}={reading}" if reading else name


def given_readings(terms: Sequence[str]) -> dict[str, str]:
    """Of a claim's terms that have one, by name."""
    return {name: reading for name, reading in map(split_reading, terms) if reading}


def split_reading(text: str) -> tuple[str, str]:
    """Name and reading, "" where none is given."""
    name, _, reading = text.partition("=")
    return name, reading
