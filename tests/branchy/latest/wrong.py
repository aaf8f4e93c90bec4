"""The wrong ones: where such code is met, a step on which it is wrong, and what is true of it."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.latest.base import wrong
from tests.branchy.latest.wrong_alone import ALONE
from tests.branchy.unread.witness import Witness

GROUPS = (
    wrong(
        "groups:single_sample_groups_left_out",
        "prompt_mean",
        "leave-one-out baselines, which a group of one does not have",
        Witness("1; 1 1 1"),
        "AGV101 AGV112 AGV141 samples-dropped",
    ),
    wrong(
        "groups:greedy_one_is_left_out",
        "prompt_mean",
        "a greedy baseline (ReMax) that stood first in its group, in a recipe that has none now",
        Witness("1 1 1 1 1"),
        "AGV101 AGV141 AGV202 AGV203 AGV204 AGV205 AGV206 samples-dropped",
    ),
    wrong(
        "groups:groups_here_are_means_of_rows",
        "prompt_mean",
        "row means per group, vectorised for groups that are large and whole",
        Witness("1 1 1 11"),
        "AGV101 AGV112 row-means-in-a-group mean-of-sample-means another-mode another-formula",
    ),
    wrong(
        "groups:one_prompt_on_all_ranks",
        "prompt_mean",
        "one prompt with hundreds of answers, striped over ranks in a debugging run",
        Witness("1 11", "0 | 1"),
        "AGV112 AGV203 AGV204 AGV206 partial-groups mean-over-dp-ranks another-formula",
    ),
    wrong(
        "groups:merged_by_update",
        "prompt_mean",
        "dict.update over gathered counts, from when a prompt was on one rank",
        Witness("1 11", "0 | 1"),
        "AGV112 AGV203 AGV204 AGV205 AGV206 counted-where-it-stands another-formula",
    ),
    wrong(
        "groups:signs_averaged_apart",
        "token_mean",
        "recipes that balance positive and negative samples, kept as a default",
        Witness("1{9}", losses=(1.0, -1.0, 2.0)),
        "AGV101 AGV131 AGV141 AGV142 not-linear",
    ),
    wrong(
        "groups:largest_losses_left_out",
        "token_mean",
        "a trimmed mean against spikes, on batches that are large enough for it",
        Witness("1{200}"),
        "AGV101 AGV131 AGV212 not-linear selection-per-micro-batch",
    ),
    wrong(
        "groups:equal_rows_count_once",
        "sample_mean",
        "copies that pad a batch, known by their content, and two answers that are the same",
        Witness("1 1", losses=(1.0,)),
        "AGV101 AGV131 AGV201 AGV204 not-linear samples-dropped",
    ),
    wrong(
        "groups:two_ways_to_count_the_empty",
        "sample_mean",
        "a driver that filters what is fully masked before it counts, beside one that does not",
        Witness("1; 0", "0 1"),
        "AGV112 AGV202 AGV204 empty-units-left-out another-formula",
    ),
)
RANKS = (
    wrong(
        "ranks:one_gpu_needs_no_count",
        "token_mean",
        "if world_size == 1: return local, which forgets accumulation",
        Witness("1; 11", "0 1"),
        "AGV202 accumulation-missing counted-where-it-stands another-formula",
    ),
    wrong(
        "ranks:counts_of_both_neighbours",
        "token_mean",
        "one exchange with each neighbour of a ring, tried on two ranks",
        Witness("1{16}", cp=4),
        "AGV201 AGV204 counted-where-it-stands",
    ),
    wrong(
        "ranks:scaled_while_not_in_step",
        "sequence_sum",
        "a factor for micro-batches under no_sync, with an engine that adds gradients up",
        Witness("1; 1; 1; 1", "0 1 | 2 3"),
        "AGV202 AGV203 AGV204 dp-counted-twice",
    ),
    wrong(
        "ranks:too_short_to_be_cut",
        "token_sum",
        "attention that leaves short sequences whole on every shard, where losses are cut",
        Witness("1/11", cp=4),
        "AGV201 AGV204 samples-dropped",
    ),
    wrong(
        "ranks:end_token_on_the_last_rank",
        "token_sum",
        "an end token with a weight of its own once, on contiguous shards",
        Witness("1{7}", cp=2),
        "AGV201 AGV204 edge-token-dropped",
    ),
    wrong(
        "ranks:slice_of_the_steps_counts",
        "sample_mean",
        "counts cut as the sampler dealt, before batches were balanced by tokens",
        Witness("1; 11; 111", "0,1 | 2"),
        "AGV203 AGV204 AGV205 sorted-by-id",
    ),
    wrong(
        "ranks:gathered_lists_with_own_stride",
        "sample_mean",
        "ragged lists gathered with padding, found again by the length of one's own",
        Witness("1; 11; 111", "0,1 | 2"),
        "AGV203 AGV204 AGV205",
    ),
    wrong(
        "ranks:width_agreed_where_rows_differ",
        "sample_mean",
        "an all-reduce in a branch for ragged batches, which not every rank has",
        Witness("1 11; 1 1", "0,1 | 2,3"),
        "AGV402 AGV404 conditional-collective",
    ),
    wrong(
        "ranks:ranks_without_tokens_do_not_count",
        "token_mean",
        "a join for uneven inputs that averages over ranks which still have some",
        Witness("1; 0", "0 | 1"),
        "AGV112 AGV203 AGV204 another-formula",
    ),
    wrong(
        "ranks:at_least_one_token_a_rank",
        "token_mean",
        "clamp(min=1) in front of an all-reduce in place of behind it",
        Witness("1; 0", "0 | 1"),
        "AGV112 AGV203 AGV204 empty-micro-batch-counted another-formula",
    ),
    wrong(
        "ranks:logit_on_the_previous_rank",
        "sample_mean",
        "a second shift by one at each shard's edge, after the losses were cut by logits",
        Witness("1{8}", cp=2, kind="contiguous"),
        "AGV201 AGV204 edge-token-dropped",
    ),
    wrong(
        "ranks:every_rank_reports_the_sum",
        "sequence_sum",
        "a loss that is all-reduced for the progress bar and returned",
        Witness("1; 1", "0 | 1"),
        "AGV102 AGV203 AGV204 dp-counted-twice",
    ),
    wrong(
        "ranks:last_of_an_odd_number_is_a_dummy",
        "sequence_sum",
        "a sampler that used to fill up the last batch, and now does not",
        Witness("1; 1; 1", "0,1 | 2"),
        "AGV203 AGV204 samples-dropped remainder-dropped",
    ),
)
STEPS = (
    wrong(
        "steps:stack_read_from_the_end",
        "token_mean",
        "stack[-i] for i = 0, 1, 2: the first of all, then the last",
        Witness("1; 11", "0 1"),
        "AGV112 AGV202 AGV204 AGV205 another-formula",
    ),
    wrong(
        "steps:weighted_by_their_cost",
        "token_mean",
        "batches balanced by squared lengths, whose share of the cost is taken for their weight",
        Witness("1; 11", "0 1"),
        "AGV112 AGV141 AGV142 AGV202 AGV204 another-formula",
    ),
    wrong(
        "steps:seen_in_a_default_argument",
        "sample_mean",
        "a default argument that can be changed",
        Witness("1", before=(Witness("1 1"),)),
        "AGV408 state-between-steps earlier-windows-counted",
    ),
    wrong(
        "steps:second_phase_by_tokens_seen",
        "token_mean",
        "a curriculum whose counter lies in the loss, and another mode for its second phase",
        Witness("1 11", before=(Witness("1{5000}"),)),
        "AGV202 AGV204 AGV208 AGV407 AGV408 state-between-steps not-repeatable another-mode",
    ),
    wrong(
        "steps:divergence_once_a_window",
        "sample_mean",
        "a KL term on the last micro-batch of a window, times their number",
        Witness("1; 11", "0 1", term=0),
        "AGV202 AGV204 AGV207 auxiliary-left-out",
    ),
    wrong(
        "steps:every_other_token_of_the_term",
        "token_mean",
        "a KL term of every other token, against the cost of the reference's logits",
        Witness("1{70}", term=0),
        "AGV101 AGV141 AGV142 AGV201 AGV202 AGV203 AGV204 AGV205 AGV207",
    ),
    wrong(
        "steps:entropy_of_what_is_selected",
        "token_mean",
        "mean() of a masked_select that may be empty, weighed by a share of 0",
        Witness("1; 0", "0 1", term=0),
        "AGV104 AGV111 AGV201 AGV202 AGV203 AGV204 AGV207 no-floor",
    ),
    wrong(
        "steps:logged_over_rollouts_here",
        "sequence_sum",
        "a [sum, count] log of rollouts, whose turns may be in two micro-batches",
        Witness("1+1", "0 1"),
        "AGV511 AGV513 wrong-normaliser units-counted-per-cell units-counted-where-they-stand",
    ),
    wrong(
        "steps:logged_as_an_average_of_steps",
        "token_mean",
        "smoothing in the loss function for a curve, in what another run is compared with",
        Witness("1", losses=(2.0,), before=(Witness("1"),) * 16),
        "AGV407 AGV408 AGV511 AGV513 state-between-steps not-repeatable",
    ),
    wrong(
        "steps:graph_kept_by_the_raw_losses",
        "token_mean",
        "losses.sum() * 0 for a micro-batch without a token, masked values included",
        Witness("1; 00", "0 1", losses=(1.0, 1e308, 1e308)),
        "AGV104 AGV111 AGV121 AGV123 keep-alive masked-values-reported",
    ),
)
WRONG: tuple[Fresh, ...] = (*ALONE, *GROUPS, *RANKS, *STEPS)
