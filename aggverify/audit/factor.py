"""What an engine does to gradients after backward: all before it is in the weights already."""

from __future__ import annotations

from fractions import Fraction
from math import prod

from aggverify.audit.steps import ParallelDims, RecordedStep
from aggverify.engines import EngineSpec, RealEngine, Sizes
from aggverify.engines.emulated import EmulatedEngine
from aggverify.errors import InputError


def formula(engine: EngineSpec) -> EmulatedEngine:
    """Return the engine as data; raises InputError for one that is none."""
    found = engine.formula if isinstance(engine, RealEngine) else engine
    if not isinstance(found, EmulatedEngine):
        raise InputError(
            f"engine {engine.name} {engine.does}: an audit takes one that only scales and sums "
            f"gradients after backward, for example ddp, fsdp2, sum or megatron-token"
        )
    return found


def reduction(engine: EngineSpec, ranks: ParallelDims, step: RecordedStep) -> Fraction:
    """Return what multiplies the sum of all ranks' gradients of a step."""
    known = formula(engine)
    sizes = _sizes(ranks, step)
    counted = step.counts
    tokens = step.step.num_unmasked * ranks.cp_size if counted is None else int(counted)
    factors = (*known.before_reduction, *known.after_reduction)
    after = (*factors, *(known.gathered if sizes.gathered else ()))
    return prod((factor.exact(sizes, tokens) for factor in after), start=Fraction(1))


def _sizes(ranks: ParallelDims, step: RecordedStep) -> Sizes:
    micro_batches, rollouts = step.case.layout.num_microbatches, step.step.num_rollouts
    gathered = any(sample.copies for sample in step.samples)
    return Sizes(ranks.dp_size, ranks.cp_size, micro_batches, rollouts, gathered)
