"""Bugs of objectives that compare the two rollouts of a pair."""

from __future__ import annotations

from aggverify.diagnosis.bugs.base import Bug
from aggverify.diagnosis.clues import Claimed, Count, Off, Shape, sign

_PAIRS = Claimed(modes=("pair_mean",))
BUGS: tuple[Bug, ...] = (
    Bug(
        "split-pairs",
        "of a pair that is split over micro-batches or ranks, what is at hand is compared",
        "incomplete pairs that are skipped, or paired by position",
        "raise where one of two is missing; where the trainer keeps pairs whole: --group-size 2",
        (sign("split-pairs"),),
    ),
    Bug(
        "pairs-where-they-stand",
        "the mean is over the pairs of one micro-batch or rank, not of the step",
        "ms-swift #10144",
        "divide by the number of pairs of the step, counted once, before the split",
        (
            Shape(outer=(Count("(non-empty )?(rollouts|samples|prompt groups)", "", None, ".+"),)),
            _PAIRS,
        ),
    ),
    Bug(
        "sequences-for-pairs",
        "the sum over pairs is divided by the number of sequences: every update is half as large",
        "mean over a batch of chosen and rejected rows",
        "divide by the number of pairs of the step, which is half the number of its sequences",
        (Off(("P/N",)), _PAIRS),
    ),
    Bug(
        "length-normalised-pairs",
        "each sequence's sum is divided by its own tokens before the two are compared",
        "minimind (its dpo_loss)",
        "compare sums of log-probabilities (or declare sequence = mean, as TRL's IPO and SimPO do)",
        (sign("sequence=mean"), _PAIRS),
    ),
    Bug(
        "sums-for-means-of-pairs",
        "the sums of the two sequences are compared, not their means",
        "TRL #1265, torchtune #1291 (IPO)",
        "divide each sequence's sum by its own tokens (or declare sequence = sum)",
        (sign("sequence=sum"), _PAIRS),
    ),
    Bug(
        "exchanged-pairs",
        "the chosen and the rejected sequence are exchanged: training prefers the rejected one",
        "rows split in another order than they were put together",
        "take the rollout with the smaller id of every pair for the chosen one",
        (sign("exchanged-pairs"), _PAIRS),
    ),
)
