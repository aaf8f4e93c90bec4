"""What a step or layout may contain that not every convention can see, each in words."""

from __future__ import annotations

from collections.abc import Mapping

EXPERTS = "experts"
FEATURES: Mapping[str, str] = {
    "data-parallel": "samples dealt to several data-parallel ranks",
    "micro-batches": "several micro-batches accumulated on a rank",
    "context-parallel": "samples sliced over context-parallel ranks",
    "contiguous": "context-parallel ranks that own contiguous chunks",
    "gathered": "losses gathered over context parallelism before the reduction",
    "bshd": "context-parallel ranks that own zigzag chunks of rows padded to one width",
    "fan-out": "rollouts that consist of several samples",
    "straddling-groups": "prompt groups split over ranks or micro-batches",
    "straddling-shards": "prompt groups split over data-parallel ranks",
    "dummy-samples": "fully masked copies of a sample that fill up micro-batches",
    "empty-steps": "steps without one unmasked token, which a trainer may refuse on purpose",
    "rejection": "tokens rejected after the fact: the losses' mask differs from the one counted",
    "ragged-micro-batches": "micro-batches with different numbers of samples",
    "generations": "generation batches of several optimizer steps, of which each is judged",
    EXPERTS: "parameters of experts, whose gradients have a group of their own",
    "whole-groups": "only prompt groups of one size, each whole in one micro-batch",
    "poison": "NaN and infinite losses behind the mask",
    "validates-arguments": "calls that contradict themselves, which must raise",
    "loss-function": "a loss that our trainer has in hand: to scale before backward, to compute "
    "without gradients, to compare with its gradient",
}
"""What a step or layout may contain that not every convention can see."""
UNUSUAL = frozenset({"bshd", "generations", EXPERTS})
"""Those of few frameworks: seen by the conventions that declare them, and where they are
claimed."""
