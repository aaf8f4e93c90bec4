"""What people call the inputs of a reducer: read off a parameter's name, nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from aggverify.oracles import MODES, NAMES


class Role(Enum):
    """What a parameter stands for."""

    LOSSES = "per-token losses"
    MASK = "loss mask"
    BATCH = "all of the micro-batch"
    PLACE = "the rank's place in its groups"
    TOKENS = "tokens of the step"
    SAMPLES = "rollouts of the step"
    GROUPS = "prompt groups of the step"
    DIVISOR = "fixed divisor"
    WORLD = "ranks that gradients are averaged over"
    MICRO_BATCHES = "micro-batches of a rank"
    MODE = "mode"
    LENGTHS = "response lengths"
    ENDS = "where each sample of the losses begins and the last one ends"
    TOTALS = "total lengths"
    ROLLOUT_TOKENS = "tokens of each sample's rollout"
    AXIS = "axis"
    CP_RANK = "context-parallel rank"
    CP_SIZE = "context-parallel size"
    CP_GROUP = "context-parallel process group"
    DP_GROUP = "data-parallel process group"
    DP_RANK = "data-parallel rank"
    ADVANTAGES = "advantages"
    LOG_PROBS = "log-probabilities"
    CLIP = "clip range, of no effect at ratio 1"
    COEFFICIENT = "coefficient of another term"


def _of(framework: str) -> Mapping[str | bool, str]:
    found = {name: m.name for m in MODES.values() for name in m.names.get(framework, ())}
    return dict(sorted(found.items(), key=lambda item: item[1] != "token_mean"))


def named_modes(values: Sequence[str]) -> Mapping[str | bool, str]:
    """Those of these values that name one mode, with that mode."""
    known = {name: {m.mode for m in meanings} for name, meanings in NAMES.items()}
    known |= {name: {name} for name in MODES}
    found = {value: known.get(value, set()) & MODES.keys() for value in values}
    return {value: next(iter(modes)) for value, modes in found.items() if len(modes) == 1}


_NAMES: Mapping[Role, str] = {
    Role.LOSSES: """
        losses loss loss_mat loss_matrix loss_tensor per_token_loss per_token_losses token_loss
        token_losses per_token_policy_loss values value tensor x pg_loss pg_losses policy_loss
        policy_losses output output_tensor nll nll_loss unreduced_loss raw_loss elementwise_loss
        token_level_losses l""",
    Role.MASK: """
        mask masks loss_mask loss_masks local_mask local_masks response_mask response_masks
        completion_mask completion_masks action_mask action_masks attention_mask token_mask
        token_masks valid_mask pg_loss_masks masks_list m eos_mask assistant_mask""",
    Role.BATCH: "batch micro_batch microbatch mb data micro batch_info",
    Role.PLACE: "parallel_state parallel_info parallel_context parallel_ctx",
    Role.TOKENS: """
        batch_num_tokens num_items_in_batch num_tokens n_tokens total_tokens global_tokens
        global_num_tokens global_valid_toks global_valid_tokens num_valid_tokens token_count
        global_token_count total_num_tokens step_tokens global_normalization_factor
        ntokens total_valid_tokens denominator num_loss_tokens num_valid_toks""",
    Role.SAMPLES: """
        global_batch_size num_samples num_sequences num_seqs global_valid_seqs n_samples
        global_valid_samples num_rollouts n_rollouts total_samples global_num_samples
        gbs step_global_batch_size""",
    Role.GROUPS: "num_prompts num_groups n_prompts n_groups global_num_prompts",
    Role.DIVISOR: """
        loss_scale_factor max_seq_len max_length max_len max_response_length max_completion_length
        divisor constant_normalizer generate_max_len generation_max_len max_tokens max_new_tokens
        pg_loss_divisor loss_aggregation_divisor normalize_length norm_length""",
    Role.WORLD: """
        dp_size world_size data_parallel_size dp_world_size num_ranks dp n_ranks dp_cp_size
        num_processes fsdp_size""",
    Role.MICRO_BATCHES: """
        num_microbatches num_micro_batches gradient_accumulation_steps accumulation_steps
        grad_accum_steps grad_accum n_microbatches num_accumulation_steps
        current_gradient_accumulation_steps""",
    Role.MODE: """
        loss_agg_mode loss_reduction loss_type token_level_loss calculate_per_token_loss mode
        reduction agg_mode aggregation aggregation_mode loss_aggregation""",
    Role.LENGTHS: "response_lengths response_lens completion_lengths lengths seq_lens seqlens",
    Role.ENDS: "cu_seqlens cu_seq_lens cu_seqlens_q cumulative_lengths",
    Role.TOTALS: "total_lengths total_lens",
    Role.ROLLOUT_TOKENS: "sample_denoms denominators rollout_tokens",
    Role.AXIS: "dim axis",
    Role.CP_RANK: "cp_rank context_parallel_rank",
    Role.CP_SIZE: "cp_size context_parallel_size",
    Role.CP_GROUP: "cp_group context_parallel_group",
    Role.DP_GROUP: "dp_group data_parallel_group process_group group",
    Role.DP_RANK: "dp_rank rank data_parallel_rank",
    Role.ADVANTAGES: "advantages advantage adv advs",
    Role.LOG_PROBS: """
        log_probs logprobs log_prob logprob logps logp old_log_probs old_log_prob old_logprobs
        old_logps old_logp ref_log_probs ref_log_prob ref_logprobs ref_logps ref_logp
        per_token_logps old_per_token_logps ref_per_token_logps trainer_logprobs
        inference_logprobs teacher_logprobs proximal_logprobs proximal_logp rollout_log_probs
        new_log_probs new_logprobs sampling_logprobs""",
    Role.CLIP: """
        clip_eps eps_clip epsilon epsilon_low epsilon_high cliprange cliprange_low cliprange_high
        clip_range clip_ratio clip_ratio_low clip_ratio_high clip_low clip_high eps_low eps_high
        clip_eps_low clip_eps_high""",
    Role.COEFFICIENT: "beta kl_coef kl_loss_coef kl_beta entropy_coef entropy_coeff kl_coeff",
}
CHOICES: Mapping[str, Mapping[str | bool, str]] = {
    "loss_agg_mode": _of("verl"),
    "loss_reduction": _of("SkyRL"),
    "loss_type": _of("TRL"),
    "token_level_loss": {True: "token_mean", False: "sample_mean"},
    "calculate_per_token_loss": {False: "sample_mean", True: "token_mean"},
}
"""What a parameter for the mode can be, with the mode that it means; the usual one first."""
_ROLES: Mapping[str, Role] = {
    name: role for role, names in _NAMES.items() for name in names.split()
}


COUNTS = frozenset(
    {Role.TOKENS, Role.SAMPLES, Role.GROUPS, Role.DIVISOR, Role.WORLD, Role.MICRO_BATCHES}
)
"""Of which a name alone does not determine what is counted."""
_OF_THE_STEP = ("global", "batch", "step", "total", "gbs")
"""In the name of a count that is the step's beyond doubt."""


def is_of_the_step(parameter: str) -> bool:
    """Whether by its name a count is the step's, rather than the micro-batch's."""
    return any(word in parameter.lower() for word in _OF_THE_STEP)


_BEFORE = ("current_", "per_token_", "curr_", "policy_", "padded_")
"""What is in front of a name that is known without it."""
_LOG_PROBS = ("_logps", "_logp", "_logprobs", "_logprob", "_log_probs", "_log_prob")


def role(parameter: str) -> Role | None:
    """Return what a parameter of that name stands for, as far as it is known."""
    name = parameter.strip("*_").lower()
    found = _ROLES.get(name)
    if found is None and name.endswith(_LOG_PROBS):
        return Role.LOG_PROBS
    for before in _BEFORE:
        name = name.removeprefix(before)
    return _ROLES.get(name) if found is None else found
