"""The wrong ones of layouts, collectives and arithmetic."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.later.base import wrong
from tests.branchy.unread.witness import Witness

LAYOUTS = (
    wrong(
        "layouts_a:rows_up_to_the_capacity",
        "sample_mean",
        "packed rows of a fixed capacity, from before responses were longer than one",
        Witness("1{1030}"),
        "AGV101 AGV141 AGV142 another-formula",
    ),
    wrong(
        "layouts_a:unfolded_into_tiles",
        "sequence_sum",
        "unfold for tiles, which leaves out what does not fill one",
        Witness("1{17}"),
        "AGV101 AGV112 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 remainder-dropped "
        "samples-dropped",
    ),
    wrong(
        "layouts_a:shards_as_the_sampler_deals",
        "sequence_sum",
        "fill-up copies known by the stride of a sampler, with batches balanced since",
        Witness("1; 1", "1 | 0"),
        "AGV112 AGV203 AGV204 samples-dropped",
    ),
    wrong(
        "layouts_a:averaged_where_sizes_are_equal",
        "token_mean",
        "equal sizes in samples, taken for equal parts of the tokens",
        Witness("1; 11", "0 1"),
        "AGV202 AGV204 mean-over-micro-batches mean-over-cells another-formula",
    ),
    wrong(
        "layouts_a:rollouts_a_micro_batch",
        "constant",
        "micro_batch_size = n // accumulation_steps, with a last one that is larger",
        Witness("1; 1; 1", "0,1 2"),
        "AGV202 AGV203 AGV204 another-formula",
    ),
    wrong(
        "layouts_a:two_halves_of_a_shard",
        "token_sum",
        "zigzag halves by len // 2, from batches padded to 2 * cp_size",
        Witness("1{5}", cp=2),
        "AGV201 AGV204 remainder-dropped edge-token-dropped",
    ),
    wrong(
        "layouts_a:whole_chunks_are_averaged",
        "token_mean",
        "a fast path where chunks fit, whose tokens are masked unevenly",
        Witness("1{12}0000"),
        "AGV101 AGV141 AGV142 AGV205 another-formula",
    ),
    wrong(
        "layouts_a:counts_sent_as_losses_are",
        "token_mean",
        "counts in one bfloat16 bucket with metrics, for one collective fewer",
        Witness("1{257}; 1", "0 | 1"),
        "AGV203 AGV204 counted-in-16-bits another-formula",
    ),
    wrong(
        "layouts_a:segments_in_a_byte",
        "sample_mean",
        "segment ids as int8 against memory, with many short samples in a row",
        Witness("; ".join([*["1"] * 128, "11"])),
        "AGV101 AGV141 another-formula",
    ),
)
ARITHMETIC = (
    wrong(
        "layouts_a:prompts_packed_together",
        "prompt_mean",
        "a packer that kept a prompt's answers together, until there was a limit of tokens",
        Witness("1 1", "0 1"),
        "AGV202 AGV204 partial-groups counted-where-it-stands another-formula",
    ),
    wrong(
        "arithmetic_a:gradient_is_final",
        "token_mean",
        "fused losses that leave out grad_output, as the loss is the last node",
        Witness("1{70}", scale=1024.0),
        "AGV126",
    ),
    wrong(
        "arithmetic_a:added_up_in_half",
        "token_sum",
        "float16 for its digits, without the range of bfloat16",
        Witness("111", dtype="bfloat16", losses=(32768.0,)),
        "AGV102 AGV301",
    ),
)
WRONG_A: tuple[Fresh, ...] = (*LAYOUTS, *ARITHMETIC)
