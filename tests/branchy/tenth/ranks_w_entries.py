"""What is known of each reducer of ``ranks_w``."""

from __future__ import annotations

from tests.branchy.fresh.base import Fresh
from tests.branchy.tenth.base import right, wrong
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "ranks_w:offsets_travel_with_the_losses",
        "sample_mean",
        "Megatron-style broadcast of a batch: one buffer of one dtype saves a second broadcast",
        Witness("1/1{256}; 1/111", cp=2, dtype="bfloat16"),
        "AGV301 AGV201 AGV202 AGV204 AGV205 counted-in-16-bits",
    ),
    wrong(
        "ranks_w:ring_totals_in_buckets",
        "token_mean",
        "slime's and Megatron's logs reduced over the ring: the last handle waits for all, as on "
        "a stream of NCCL",
        Witness("1/11; 1/11; 1/11; 1/11; 1/11; 1/11; 1/11; 1/11; 1/11", cp=2),
        "AGV411 AGV511 AGV513 AGV201 AGV202 AGV204 AGV407",
    ),
    wrong(
        "ranks_w:refills_of_the_last_bin_left_out",
        "sequence_sum",
        "a DistributedSampler or a dynamic batcher that repeats samples in the last micro-batch",
        Witness("1/1+1/1", "0 1"),
        "AGV202 AGV204 AGV205 AGV206",
    ),
    wrong(
        "ranks_w:starts_marked_on_the_packed_row",
        "sample_mean",
        "segment ids made of cu_seqlens by marking starts, in collators for flash-attention",
        Witness("1/1{12}; 1/1; 1/1{6}", cp=2),
        "AGV201 AGV202 AGV204 AGV205",
    ),
    wrong(
        "ranks_w:one_process_of_a_node_logs",
        "token_sum",
        "is_local_main_process around a log, where the trainer adds up what all ranks log",
        Witness("1/1; 1/1", "0 | 1", where="launched"),
        "AGV412 AGV511 AGV513 AGV405 logged-in-part copies-disagree",
    ),
    wrong(
        "ranks_w:ring_asked_for_missing_tokens",
        "prompt_mean",
        "a token metric of context parallelism: who has all tokens saves the communication",
        Witness("1/1", cp=2),
        "AGV404 AGV402 AGV201 AGV204 conditional-collective",
    ),
    wrong(
        "ranks_w:cuts_reused_for_equal_lengths",
        "constant",
        "a cache of context-parallel indices, as the cutting costs host time for every sample",
        Witness("2/11111111; 3/11111100", cp=2),
        "AGV201 AGV204 AGV205 AGV408 AGV121 AGV122 AGV123 AGV124 shard-cut-wrongly "
        "state-between-steps",
    ),
    wrong(
        "ranks_w:rollouts_dealt_like_cards",
        "constant",
        "verl's and OpenRLHF's global batch size as local size times world size, where ranks are "
        "balanced by tokens",
        Witness("1/1+1/1; 1/1", "0 | 1,2"),
        "AGV203 AGV204 AGV205 AGV206 units-counted-where-they-stand",
    ),
    wrong(
        "ranks_w:kl_recounted_where_groups_are_whole",
        "prompt_mean",
        "a KL loss with counts of its own, from the time when a rollout was one sample",
        Witness("1/1+1/1", "0 1", term=0),
        "AGV207 AGV202 AGV203 AGV204 AGV206 auxiliary-local-count partial-groups partial-rollouts",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "ranks_w:ring_totals_by_waited_buckets",
        "token_mean",
        "logs of sample totals under context parallelism, reduced while others are sent",
    ),
    right(
        "ranks_w:pieces_found_by_their_ends",
        "sample_mean",
        "segment ids of a packed row in which context parallelism leaves empty pieces",
    ),
    right(
        "ranks_w:places_kept_by_all_they_hang_on",
        "constant",
        "a cache of context-parallel indices that outlives a step",
    ),
    right(
        "ranks_w:ring_asked_if_anyone_has_tokens",
        "sequence_sum",
        "a token metric of context parallelism that spares empty micro-batches a reduction",
    ),
    right(
        "ranks_w:kl_recounted_where_all_samples_are_here",
        "prompt_mean",
        "a KL loss with counts of its own for multi-turn rollouts of several samples",
    ),
    right(
        "ranks_w:every_process_logs_its_part",
        "token_sum",
        "a log with the node's number beside each process's part of the loss",
    ),
)
