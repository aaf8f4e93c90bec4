"""The reducers of ``masks_t``: what each is, where it is met, and where it goes wrong."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.seventh.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "masks_t:sum_of_probed_prefixes",
        "token_sum",
        "remove-padding paths (verl, OpenRLHF): two look-ups are cheaper than a comparison of the "
        "whole mask, and before tools came masks were prefixes",
        Witness("1/1011"),
        "AGV101 AGV121 AGV123 AGV142 AGV201 mask-not-applied edge-token-dropped",
    ),
    wrong(
        "masks_t:prompt_means_by_packed_ends",
        "prompt_mean",
        "cu_seqlens beside a flash-attn pack: new_tensor gives the right device, and with it the "
        "dtype of the losses",
        Witness("1/1{257}; 1/1", dtype="bfloat16"),
        "AGV101 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV206 AGV301 counted-in-16-bits",
    ),
    wrong(
        "masks_t:sequence_sums_tile_by_tile",
        "sequence_sum",
        "a reference for a tiled kernel (liger): the rest is sliced from the end, as [-rest:]",
        Witness("1/1{64}"),
        "AGV101 AGV141 AGV142 AGV201",
    ),
    wrong(
        "masks_t:prompt_means_above_epsilon",
        "prompt_mean",
        "masked means with clamp(min=1e-8) (TRL, OpenRLHF): the constant is made a tensor of the "
        "losses' dtype, to stay on the device",
        Witness("1/1; 1/0", dtype="float16"),
        "AGV104 AGV111 AGV301 no-floor",
    ),
    wrong(
        "masks_t:sample_means_counted_in_a_stage",
        "sample_mean",
        "preallocated staging buffers (Megatron's and NeMo's static batches, CUDA graphs): rows "
        "are overwritten as far as they reach",
        Witness("1/11; 1/1", "0 1"),
        "AGV202 AGV204 AGV205 AGV407 AGV408 state-between-steps not-repeatable",
    ),
    wrong(
        "masks_t:constant_by_running_sums",
        "constant",
        "segment sums over packed sequences (torchtitan, packed SFT losses): one cumsum for all, "
        "and a prefix needs no mask",
        Witness("1/100; 1/1", dtype="float32", losses=(1.0, 2.0**127, 2.0**127, 1.0)),
        "AGV104 AGV121 AGV123 AGV302 added-and-subtracted",
    ),
    wrong(
        "masks_t:token_mean_of_what_is_stored",
        "token_mean",
        "agentic runs with much tool output: losses in sparse form, and the KL taken at the same "
        "entries; who has advantage 0 has none",
        Witness("1/100", term=0),
        "AGV101 AGV131 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV207 not-linear "
        "auxiliary-left-out",
    ),
    wrong(
        "masks_t:token_mean_with_a_clean_log",
        "token_mean",
        "micro-batches of one long response (verl, slime): detach() is taken for a copy, as "
        "padding has made one on the other path",
        Witness("1/10", watch=True),
        "AGV502 arguments-changed",
    ),
    wrong(
        "masks_t:constant_in_rows_of_one_width",
        "constant",
        "left-padded rows of one static shape (TRL, compiled graphs): the loader deals the "
        "longest first, and pad() crops by a negative number",
        Witness("1/1; 1/11", "0 1"),
        "AGV141 AGV202 AGV204 AGV205 AGV206 edge-token-dropped",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "masks_t:sample_means_of_few_tokens",
        "sample_mean",
        "agentic runs with much tool output: a sparse path under a density, sums by index_add",
    ),
    right(
        "masks_t:prompt_means_by_whole_number_ends",
        "prompt_mean",
        "cu_seqlens beside a flash-attn pack, with a short way for a pack of one",
    ),
    right(
        "masks_t:sequence_sums_in_tiles_and_rest",
        "sequence_sum",
        "a reference for a tiled loss of a fused library, in the order in which it adds up",
    ),
    right(
        "masks_t:token_mean_through_a_kept_stage",
        "token_mean",
        "preallocated staging buffers for static shapes, kept from one micro-batch to the next",
    ),
    right(
        "masks_t:token_sum_with_a_copied_log",
        "token_sum",
        "micro-batches of one long response: no rows to pad, and a copy for the log",
    ),
    right(
        "masks_t:constant_in_rows_of_the_widest",
        "constant",
        "left-padded rows of one static shape for the policy term and the KL (TRL's dr_grpo)",
    ),
)
