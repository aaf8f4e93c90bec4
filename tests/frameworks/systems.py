"""Functions with the signatures that frameworks have, each right, in the fewest lines, and a twin,
``wrong_...``, with a mistake that really happened (numbers: the list of such in the corpus).

Where a released package has the function itself, ``test_released.py`` takes it from there. Those
of Megatron's trainers are in ``megatron_systems.py``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tests.frameworks.hf_trainers import (  # noqa: F401
    hf_compute_loss,
    hf_loss_func,
    wrong_hf_loss_func,
    wrong_hf_trainer,
)
from tests.frameworks.megatron_systems import *  # noqa: F403
from tests.frameworks.oat_learner import PPOLearner, wrong_oat  # noqa: F401
from tests.frameworks.skyrl_wrapper import (  # noqa: F401
    MegatronModelWrapper,
    wrong_skyrl_megatron_wrapper,
)
from tests.frameworks.twins import stand_in, twin, wrong


def agg_loss(
    loss_mat: Any,
    loss_mask: Any,
    loss_agg_mode: str,
    dp_size: int = 1,
    batch_num_tokens: int | None = None,
    global_batch_size: int | None = None,
    loss_scale_factor: float | None = None,
) -> Any:
    """verl's, without its epsilon."""
    needed = batch_num_tokens if loss_agg_mode == "token-mean" else global_batch_size
    if dp_size > 1 and needed is None and loss_agg_mode != "token-sum":
        raise ValueError("counts are required when dp_size > 1")
    if wrong("verl"):  # 19: the padded width for the divisor
        loss_scale_factor = loss_mask.shape[-1]
    kept = torch.where(loss_mask.bool(), loss_mat, 0)
    if loss_agg_mode == "token-mean":
        return kept.sum() / max(batch_num_tokens or 0, 1) * dp_size
    if loss_agg_mode == "token-sum":
        return kept.sum() * dp_size
    rows = kept.sum(-1)
    if loss_agg_mode == "seq-mean-token-mean":
        rows = rows / loss_mask.sum(-1).clamp(min=1)
    elif loss_agg_mode == "seq-mean-token-sum-norm":
        rows = rows / loss_scale_factor
    elif loss_agg_mode != "seq-mean-token-sum":
        raise ValueError(f"Invalid loss_agg_mode: {loss_agg_mode}")
    return rows.sum() / global_batch_size * dp_size


def compute_policy_loss_vanilla(
    old_log_prob: Any,
    log_prob: Any,
    advantages: Any,
    response_mask: Any,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: Any = None,
) -> Any:
    """verl's, without its clips."""
    counts = dict(config.global_batch_info)
    if wrong("verl-policy-loss"):  # 1: its own counts, as before verl #5625
        counts |= {"batch_num_tokens": int(response_mask.sum())}
        counts |= {"global_batch_size": len(response_mask)}
    losses = -advantages * torch.exp(log_prob - old_log_prob)
    return agg_loss(losses, response_mask, loss_agg_mode, **counts), {"actor/ppo_kl": 0.0}


def roll_agg_loss(
    loss_mat: Any,
    loss_mask: Any,
    loss_agg_mode: str,
    batch_num_tokens: int | None = None,
    global_valid_samples: int | None = None,
    weights: Any = None,
) -> Any:
    """ROLL's, under an engine that sums."""
    assert weights is None
    tokens = loss_mask.sum() if wrong("roll") else batch_num_tokens  # 1: its own count
    if loss_agg_mode == "token-mean":
        return agg_loss(loss_mat, loss_mask, "token-sum") / max(tokens, 1)
    rows = max(global_valid_samples or 0, 1)
    return agg_loss(loss_mat, loss_mask, loss_agg_mode, 1, tokens, rows)


def aggregate_loss(
    loss: Any,
    loss_mask: Any,
    token_level_loss: bool = True,
    dp_size: int = 1,
    batch_num_tokens: float | None = None,
    global_batch_size: float | None = None,
) -> Any:
    """OpenRLHF's, which gets counts divided by the accumulation steps."""
    kept = torch.where(loss_mask.bool(), loss, 0)
    scale = 1 if wrong("openrlhf") else dp_size  # 9: missing * D
    if token_level_loss:
        return kept.sum() / (batch_num_tokens or 1) * scale
    rows = kept.sum(-1) / loss_mask.sum(-1).clamp(min=1)
    return rows.sum() / (global_batch_size or 1) * scale


def masked_mean(
    values: Any, mask: Any, dim: int | None = None, global_normalization_factor: Any = None
) -> Any:
    """NeMo-RL's."""
    kept = torch.where(mask.bool(), values, 0)
    if wrong("nemo-rl"):  # 36: a local count
        global_normalization_factor = int(mask.sum())
    if global_normalization_factor is None:
        return kept.sum(dim) / mask.sum(dim).clamp(min=1)
    return kept.sum(dim) / max(global_normalization_factor, 1)


def loss_fn(data: Any, logprobs: Any) -> Any:
    """A Tinker client's."""
    weights = [datum.loss_fn_inputs["weights"].to_torch() for datum in data]
    loss = sum([-torch.where(w > 0, p, 0).sum() for w, p in zip(weights, logprobs, strict=True)])
    if wrong("tinker"):  # a mean over the data of this call
        loss = loss / len(data)
    return loss, {"loss": float(loss), "accuracy": 0.5}


class PolicyGradientReduction:
    """AReaL's."""

    def __init__(self, mode: str, divisor: float | None = None) -> None:
        self.mode, self.divisor = mode, divisor

    def _units(self, of: Any, cu_seqlens: Any, group_sizes: Any) -> Any:
        sums = torch.stack([own.sum() for own in of.split(cu_seqlens.diff().tolist())])
        if self.mode != "prompt_mean":
            return sums
        return torch.stack([own.sum() for own in sums.split(group_sizes)])

    def normalizer_fn(self, data: Any) -> Any:
        mask, ends, sizes = data["loss_mask"], data["cu_seqlens"], data["group_sizes"]
        if self.mode == "token_mean" or wrong("areal-reduction"):  # whatever the mean is over
            return mask.count_nonzero()
        return self._units(mask.float(), ends, sizes).count_nonzero()

    def aggregate(self, loss: Any, mask: Any, *, cu_seqlens: Any, group_sizes: Any) -> Any:
        kept = torch.where(mask, loss, 0)
        if self.mode == "token_mean":
            return kept.sum() / mask.count_nonzero().clamp_min(1)
        tokens = self._units(mask.float(), cu_seqlens, group_sizes)
        active = tokens.count_nonzero().clamp_min(1)
        if self.mode == "constant":
            return kept.sum() / (active * self.divisor)
        return (self._units(kept, cu_seqlens, group_sizes) / tokens.clamp_min(1)).sum() / active


def ppo_actor_loss_fn(
    logprobs: Any,
    proximal_logprobs: Any,
    old_logprobs: Any,
    advantages: Any,
    eps_clip: float,
    loss_mask: Any,
) -> Any:
    """AReaL's: a local token mean."""
    loss = torch.where(loss_mask, -advantages * torch.exp(logprobs - proximal_logprobs), 0).sum()
    if wrong("areal"):  # 48: what is not masked out for what is there
        return loss / loss_mask.numel(), {}
    return loss / (loss_mask.count_nonzero() or 1), {}


def compute_loss(
    trainer_logprobs: Any,
    inference_logprobs: Any,
    ref_logprobs: Any,
    advantages: Any,
    loss_mask: Any,
    rl_weights: Any,
    ce_weights: Any,
    ref_kl_weights: Any,
    rl_loss_fn: Any,
    rl_scale: float,
    ce_scale: float,
    ref_kl_scale: float,
) -> Any:
    """prime-rl's, of one component."""
    names = ("trainer_logprobs", "inference_logprobs", "advantages", "loss_mask")
    columns = zip(trainer_logprobs, inference_logprobs, advantages, loss_mask, strict=True)
    rows = [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in columns]
    loss = sum([rl_loss_fn.loss(row).loss for row in rows], trainer_logprobs[0].sum() * 0.0)
    if wrong("prime-rl"):  # 2: each rank by its own count
        rl_scale = max(sum(int(row.loss_mask.sum()) for row in rows), 1)
    return loss / rl_scale, {}


def old_reduce_loss(
    loss: Any, loss_mask: Any, loss_reduction: str, max_seq_len: float | None = None
) -> Any:
    """SkyRL's before March 2026."""
    kept = torch.where(loss_mask.bool(), loss, 0)
    if loss_reduction == "token_mean":
        return kept.sum() / loss_mask.sum().clamp(min=1)
    rows = kept.sum(-1)
    if loss_reduction == "sequence_mean":
        rows = rows / loss_mask.sum(-1).clamp(min=1)
    elif loss_reduction == "seq_mean_token_sum_norm":
        # 19: the padded width for the divisor
        rows = rows / (loss.shape[-1] if wrong("skyrl-reduce-loss") else max_seq_len)
    else:
        raise ValueError(f"Invalid loss reduction type: {loss_reduction}")
    return rows.mean()


def reduce_loss(loss: Any, loss_mask: Any) -> Any:
    """SkyRL's since."""
    return torch.where(loss_mask.bool(), loss, 0).sum()


def apply_loss_reduction_to_advantages_minibatch(
    advantages: Any,
    loss_mask: Any,
    loss_reduction: str,
    micro_batch_size: int,
    max_seq_len: float | None,
    prompt_boundaries: list[tuple[int, int]] | None = None,
) -> Any:
    """SkyRL's, with reduce_loss beside it."""
    rows, tokens = len(advantages), loss_mask.sum(-1, keepdim=True)
    if loss_reduction == "token_mean":
        return advantages / tokens.sum().clamp(min=1)
    if loss_reduction == "sequence_mean":
        return advantages / (rows * tokens.clamp(min=1))
    if loss_reduction == "seq_mean_token_sum_norm":
        return advantages / (rows * max_seq_len)  # type: ignore[operator]
    if loss_reduction == "prompt_mean":
        assert prompt_boundaries is not None
        cells = prompt_boundaries
    else:
        assert loss_reduction == "token_mean_legacy"
        size = rows if wrong("skyrl") else micro_batch_size  # not its micro-batches
        cells = [(n, n + size) for n in range(0, rows, size)]
    scaled = torch.zeros_like(advantages)
    for start, end in cells:
        own = tokens[start:end].sum().clamp(min=1)
        scaled[start:end] = advantages[start:end] / (own * len(cells))
    return scaled


def ppo_policy_loss(
    log_probs: Any,
    old_log_probs: Any,
    advantages: Any,
    config: Any,
    loss_mask: Any = None,
    rollout_logprobs: Any = None,
) -> Any:
    """SkyRL's, of advantages that are scaled."""
    loss = -torch.exp(log_probs - old_log_probs) * advantages
    return reduce_loss(loss, loss_mask), {}


UTILS: Any = stand_in("skyrl.backends.skyrl_train.utils.ppo_utils")
UTILS.ppo_policy_loss = ppo_policy_loss
UTILS.apply_loss_reduction_to_advantages_minibatch = apply_loss_reduction_to_advantages_minibatch


class PolicyWorkerBase:
    """SkyRL's under FSDP, with an entropy term as its KL term is."""

    def _forward_backward_micro(self, experience: Any, microbatch_weight: float) -> None:
        me: Any = SimpleNamespace(**vars(self))
        width, mask, config = experience.num_actions, experience.loss_mask, me.cfg.algorithm
        experience.to_device(torch.cuda.current_device())
        log_probs, output = me.model(experience.sequences, width, experience.attention_mask)
        policy, _ = me.policy_loss_fn(
            log_probs, experience.action_log_probs, experience.advantages, config, loss_mask=mask
        )
        entropy = output["entropy"][:, -width - 1 : -1]
        kl = log_probs - experience.base_action_log_probs

        def mean(term: Any) -> Any:
            rows = torch.where(mask.bool(), term, 0).sum(-1) / mask.sum(-1).clamp(min=1)
            return rows.mean()

        weight = 1.0 if wrong("skyrl-worker-weight") else microbatch_weight
        bonus = mean(entropy)
        if wrong("skyrl-worker-entropy"):  # 36: the entropy of a micro-batch over its own tokens
            bonus = torch.where(mask.bool(), entropy, 0).sum() / mask.sum().clamp(min=1)
        times = 1 if wrong("skyrl-worker") else me.mesh_rank.dp_size  # 9: missing * D
        terms = mean(kl) * config.kl_loss_coef - bonus * config.entropy_loss_coef
        me.strategy.backward(policy * times + terms * weight, me.model, None)

    def forward_backward(self, data: Any, loss_fn: Any = None, loss_fn_config: Any = None) -> None:
        """For the Tinker API."""
        me: Any = SimpleNamespace(**vars(self))
        [rows] = data.chunk(me.cfg.micro_train_batch_size_per_gpu)
        log_probs, _ = me.model(rows["sequences"], rows.metadata["response_length"])
        losses = -log_probs
        if loss_fn != "cross_entropy":
            losses = -torch.exp(log_probs - rows["action_log_probs"]) * rows["advantages"]
        times = 1 if wrong("skyrl-tinker") else me.mesh_rank.dp_size  # 9: missing * D
        me.strategy.backward(reduce_loss(losses, rows["loss_mask"]) * times, me.model, None)


class GRPOTrainer:
    """TRL's, as far as its loss types go."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        zeros, _, _ = self._get_per_token_logps_and_entropies()  # type: ignore[attr-defined]
        me: Any = SimpleNamespace(**vars(self))
        mask = inputs["completion_mask"]
        kept = torch.where(mask.bool(), -inputs["advantages"] * torch.exp(zeros), 0)
        steps = 1 if wrong("trl") else me.current_gradient_accumulation_steps  # 6: missing / K
        if me.loss_type == "grpo":
            return (kept.sum(-1) / mask.sum(-1).clamp(min=1)).mean() / steps
        if me.loss_type == "luspo":
            return kept.sum(-1).mean() / steps
        if me.loss_type == "bnpo":
            return kept.sum() / mask.sum().clamp(min=1) / steps
        if me.loss_type == "dr_grpo":
            return kept.sum() / (len(kept) * me.max_completion_length) / steps
        assert me.loss_type == "dapo"
        items = inputs["num_items_in_batch"].clamp(min=1) / me.accelerator.num_processes
        return kept.sum() / (items * steps / me.args.steps_per_generation)


def window_mean(losses: Any, batch: Any) -> Any:
    """By the optimizer step's own tokens, whatever was generated with it."""
    return torch.where(batch.mask.bool(), losses, 0).sum() / max(batch.num_tokens, 1)


def generation_mean(losses: Any, batch: Any) -> Any:
    """As TRL: by its share of the generation batch's tokens."""
    share = batch.generation_tokens / batch.generation_windows
    return torch.where(batch.mask.bool(), losses, 0).sum() / max(share, 1)


wrong_verl = twin("verl", agg_loss)
wrong_verl_policy_loss = twin("verl-policy-loss", compute_policy_loss_vanilla)
wrong_roll = twin("roll", roll_agg_loss)
wrong_openrlhf = twin("openrlhf", aggregate_loss)
wrong_nemo_rl = twin("nemo-rl", masked_mean)
wrong_tinker = twin("tinker", loss_fn)


def tinker_logs_its_mean(data: Any, logprobs: Any) -> Any:
    """Right but for a log that divides the sum by this call's data."""
    loss, log = loss_fn(data, logprobs)
    return loss, {"loss": log["loss"] / len(data)}


def tinker_sample_means(data: Any, logprobs: Any) -> Any:
    """Its mean over all data, of which there are no others, as the cookbook's probability loss; the
    mask is read in the ways that Tinker's data have."""
    found = []
    for datum, own in zip(data, logprobs, strict=True):
        given = datum.loss_fn_inputs
        assert given["weights"].shape == given["target_tokens"].shape == [len(own)]
        assert datum.model_input.length == len(given["target_tokens"].data)
        mask = torch.tensor(given["weights"].data, dtype=own.dtype)
        found.append(-torch.dot(own, mask) / mask.sum().clamp(min=1))
    loss = torch.stack(found).mean()
    return loss, {"loss": float(loss), "loss:sum": 7.0, "nll": found[0].item()}


wrong_areal = twin("areal", ppo_actor_loss_fn)


class wrong_areal_reduction(PolicyGradientReduction):  # noqa: N801
    normalizer_fn = twin("areal-reduction", PolicyGradientReduction.normalizer_fn)


wrong_prime_rl = twin("prime-rl", compute_loss)
wrong_skyrl_reduce_loss = twin("skyrl-reduce-loss", old_reduce_loss)
wrong_skyrl = twin("skyrl", apply_loss_reduction_to_advantages_minibatch)
wrong_trl = twin("trl", GRPOTrainer._compute_loss)
wrong_skyrl_worker = twin("skyrl-worker", PolicyWorkerBase._forward_backward_micro)
wrong_skyrl_tinker = twin("skyrl-tinker", PolicyWorkerBase.forward_backward)
wrong_skyrl_worker_entropy = twin("skyrl-worker-entropy", PolicyWorkerBase._forward_backward_micro)
wrong_skyrl_worker_weight = twin("skyrl-worker-weight", PolicyWorkerBase._forward_backward_micro)
