"""What is known of the reducers of ``groups_x``, written down before any run."""

from __future__ import annotations

from tests.branchy.eleventh.base import right, wrong
from tests.branchy.fresh.base import Fresh
from tests.branchy.unread.witness import Witness

WRONG: tuple[Fresh, ...] = (
    wrong(
        "groups_x:group_counts_from_probed_slots",
        "prompt_mean",
        "a fused kernel's hash table with bounded probes; time-stamped ids share their low bits",
        Witness("1; 1; 1; 1; 1; 1", groups=(0, 64, 128, 192, 256, 320)),
        "AGV101 AGV205 AGV112 AGV141",
    ),
    wrong(
        "groups_x:samples_gathered_at_their_rollouts_first",
        "sample_mean",
        "metadata moved with .to(losses), as verl's tensors of a batch are: ids take its dtype",
        Witness("1; 11", dtype="bfloat16", rollouts=(256, 257)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV112 AGV141",
    ),
    wrong(
        "groups_x:tokens_indexed_by_dense_rollout_id",
        "sample_mean",
        "slime-like sample_denoms kept as a list per step, read by rollout id after a shuffle",
        Witness("1; 11", rollouts=(1, 0)),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV206 AGV112 AGV141 sorted-by-id",
    ),
    wrong(
        "groups_x:repeated_fill_samples_left_out",
        "token_mean",
        "batches filled up with copies to divide by dp (SkyRL, verl); copies found by id and size",
        Witness("1/1+1/1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV112 AGV141 AGV142",
    ),
    wrong(
        "groups_x:group_table_reduced_where_partial",
        "prompt_mean",
        "miles-like DP striping of prompt groups: a communication saved where groups are whole",
        Witness("1 0", "0 | 1"),
        "AGV402 AGV404 AGV203 AGV204 conditional-collective",
    ),
    wrong(
        "groups_x:reference_term_by_equal_shares",
        "constant",
        "a KL term ported from DDP, where every rank has N / D rollouts; balanced by tokens it has"
        " not",
        Witness("1/1+1/1; 1", "0 | 1,2", term=0),
        "AGV207 AGV203 AGV204 AGV206 AGV112 AGV141 auxiliary-local-count "
        "units-counted-where-they-stand units-counted-per-cell",
    ),
    wrong(
        "groups_x:rollouts_told_at_their_first",
        "sequence_sum",
        "slime-like [sum, count] logs with fan-out: counted once a rank, samples dealt by length",
        Witness("1/1+1/1", "0 | 1"),
        "AGV511 AGV513 wrong-normaliser units-counted-per-cell",
    ),
    wrong(
        "groups_x:rollouts_collected_by_groupby",
        "sequence_sum",
        "agent rollouts of several turns, collected by itertools.groupby as they come",
        Witness("1/1+1/1 1", "0,2,1"),
        "AGV101 AGV202 AGV203 AGV204 AGV205 AGV112 AGV141 rows-not-covered",
    ),
)

RIGHT: tuple[Fresh, ...] = (
    right(
        "groups_x:group_counts_from_open_addressing",
        "prompt_mean",
        "a fused hash table with room for all ids, which probes on until it finds its own",
    ),
    right(
        "groups_x:both_terms_added_per_rollout",
        "constant",
        "Dr.GRPO with a KL term: both added up by torch.unique's slots, ids in int64",
    ),
    right(
        "groups_x:tokens_by_first_place_of_whole_step",
        "sample_mean",
        "slime-like denominators per step, read in the order that the driver counted them in",
    ),
    right(
        "groups_x:each_place_of_the_step_once",
        "token_sum",
        "batches filled up with copies (SkyRL): copies are found by their place in the step",
    ),
    right(
        "groups_x:group_table_reduced_on_every_rank",
        "prompt_mean",
        "miles-like DP striping: one all-reduce of a table in the order of sorted ids",
    ),
    right(
        "groups_x:rollouts_logged_by_the_first_cell",
        "sequence_sum",
        "slime-like [sum, count] logs: fan-out sorted before groupby, N logged once",
    ),
)
