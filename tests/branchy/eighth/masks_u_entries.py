"""What the reducers of ``masks_u`` are, and on which step the ones at fault show it."""

from __future__ import annotations

from dataclasses import replace

from aggverify.oracles import Step
from aggverify.steps.case import Case
from tests.branchy.eighth.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness


class Rejected(Witness):
    """A step whose masked tokens were all rejected after the fact: no text says so."""

    __slots__ = ()

    @property
    def case(self) -> Case:
        case = Witness(self.step, self.layout, self.cp, self.kind, self.dtype).case
        samples = [
            replace(sample, original_mask=b"\1" * len(sample.loss_mask))
            for sample in case.step.samples
        ]
        return replace(case, step=Step(tuple(samples)))


WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_u:few_tokens_gathered",
        "sample_mean",
        "sparse path of a fused loss for long tool outputs: tokens looked up in cu_seqlens",
        Witness("1/1; 1/110{22}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205",
    ),
    wrong(
        "masks_u:rows_of_whole_tiles",
        "token_sum",
        "Megatron-like cp: static row widths for a compiled kernel, and pad() that also cuts",
        Witness("1/1{65}", cp=2, kind="gathered"),
        "AGV201 AGV204 AGV141 AGV142 edge-token-dropped shard-cut-wrongly",
    ),
    wrong(
        "masks_u:vetoed_leave_the_mean",
        "sequence_sum",
        "verl-like rejection sampling with a veto: nobody wants vetoed samples in the mean",
        Rejected("1/1; 1/0"),
        "AGV101 AGV112 AGV142 AGV202 AGV203 AGV204 empty-units-left-out counted-after-rejection "
        "units-counted-where-they-stand",
    ),
    wrong(
        "masks_u:counts_within_the_width",
        "sample_mean",
        "a sanity clamp on denominators from before rollouts had several samples (SkyRL, slime)",
        Witness("1/1{128}+1/1"),
        "AGV101 AGV112 AGV141 AGV142 padded-width",
    ),
    wrong(
        "masks_u:sums_off_a_running_total",
        "prompt_mean",
        "segment sums of packed rows by cumsum and cu_seqlens, one kernel in place of a loop",
        Witness("1/1{400}; 1/1; 1/1; 1/1; 1/1", dtype="bfloat16"),
        "AGV101 AGV202 AGV203 AGV301 AGV302",
    ),
    wrong(
        "masks_u:index_looked_up_by_lengths",
        "token_mean",
        "unpad indices cached by cu_seqlens, as flash-attn's metadata is, to save a nonzero()",
        Witness("1/1{31}0", before=(Witness("1/1{32}"),)),
        "AGV112 AGV121 AGV122 AGV123 AGV124 AGV142 AGV202 AGV203 AGV204 AGV205 AGV408 "
        "state-between-steps",
    ),
    wrong(
        "masks_u:scattered_backward",
        "prompt_mean",
        "liger-like fused loss with its gradient made beforehand; the dense path was tested",
        Witness("1/100", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "masks_u:penalty_before_rejection",
        "constant",
        "TIS or rejection sampling with a kl term: the penalty is thought to hold everywhere",
        Rejected("1/10", term=0),
        "AGV101 AGV121 AGV122 AGV123 AGV124 AGV201 AGV204 AGV207 mask-not-applied",
    ),
    wrong(
        "masks_u:pair_with_a_floor",
        "token_mean",
        "Megatron-like [sum, count] reporting with the clamp of the loss itself copied to it",
        Witness("1/1; 1/0", "0 1"),
        "AGV112 AGV202 AGV203 AGV204 AGV511 AGV513 phantom-tokens empty-micro-batch-counted "
        "wrong-normaliser",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_u:few_tokens_owned_by_offset",
        "sample_mean",
        "sparse path for long tool outputs: tokens looked up in cu_seqlens",
    ),
    right(
        "masks_u:prefixes_sliced",
        "token_sum",
        "rows cut at their length where a mask has no holes, as most single-turn ones",
    ),
    right(
        "masks_u:packed_sums_by_index",
        "prompt_mean",
        "segment sums of packed rows by index_add, one kernel in place of a loop",
    ),
    right(
        "masks_u:filled_backward",
        "token_mean",
        "a fused masked mean with its own backward, dense and sparse",
    ),
    right(
        "masks_u:index_looked_up_by_mask",
        "constant",
        "unpad indices cached by what they depend on, to save a nonzero() in each epoch",
    ),
    right(
        "masks_u:penalty_after_rejection",
        "sequence_sum",
        "a kl term under TIS, one sum where nothing was rejected",
    ),
)
