"""Functions with the signatures that frameworks have, each right, in the fewest lines, and a twin,
``wrong_...``, with a mistake that really happened (numbers: the list of such in the corpus).

Where a released package has the function itself, ``test_released.py`` takes it from there.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

WRONG = ""
"""Whose mistake is made, while its twin is called."""


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
    if WRONG == "verl":  # 19: the padded width for the divisor
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
    tokens = loss_mask.sum() if WRONG == "roll" else batch_num_tokens  # 1: its own count
    if loss_agg_mode == "token-mean":
        return agg_loss(loss_mat, loss_mask, "token-sum") / max(tokens, 1)
    return agg_loss(loss_mat, loss_mask, loss_agg_mode, 1, tokens, global_valid_samples)


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
    scale = 1 if WRONG == "openrlhf" else dp_size  # 9: missing * D
    if token_level_loss:
        return kept.sum() / (batch_num_tokens or 1) * scale
    rows = kept.sum(-1) / loss_mask.sum(-1).clamp(min=1)
    return rows.sum() / (global_batch_size or 1) * scale


def masked_mean(
    values: Any, mask: Any, dim: int | None = None, global_normalization_factor: Any = None
) -> Any:
    """NeMo-RL's."""
    kept = torch.where(mask.bool(), values, 0)
    if WRONG == "nemo-rl":  # 36: a local count
        global_normalization_factor = int(mask.sum())
    return kept.sum(dim) / max(global_normalization_factor, 1)


def loss_func(loss_mask: Any, output_tensor: Any) -> Any:
    """Megatron-LM's, with three outputs."""
    loss = torch.where(loss_mask.bool(), output_tensor, 0).sum()
    tokens = loss_mask.sum().to(torch.int)
    if WRONG == "megatron-lm":  # 18, before three outputs: a local mean, and its count
        loss = loss / tokens.clamp(min=1)
    report = torch.stack([loss.detach(), tokens.to(loss.dtype)])
    return loss, tokens, {"lm loss": report}


def two_output_loss_func(loss_mask: Any, output_tensor: Any) -> Any:
    """Megatron-LM's, with two outputs."""
    from megatron.core import mpu

    tokens = loss_mask.sum()
    if mpu.get_context_parallel_world_size() > 1 and WRONG != "megatron-lm-two-output":  # 3
        torch.distributed.all_reduce(tokens, group=mpu.get_context_parallel_group())
    loss = torch.where(loss_mask.bool(), output_tensor, 0).sum() / tokens.clamp(min=1)
    return loss, {"lm loss": loss.detach()}


def _zigzag(total: int, response: int, rank: int, size: int, width: int = 0) -> torch.Tensor:
    """Positions in the response of a rank's tokens, in a row of that width."""
    if size == 1:
        return torch.arange(response)
    prompt, chunk = total - response, -(-(width or total) // (2 * size))
    starts = (rank * chunk, (2 * size - 1 - rank) * chunk)
    owned = [
        torch.arange(max(a, prompt - 1), min(a + chunk, total - 1))
        for a in starts
        if max(a, prompt - 1) < min(a + chunk, total - 1)
    ]
    return torch.cat([torch.empty(0, dtype=torch.int64), *owned]) + 1 - prompt


def _reducer(
    totals: Any,
    lengths: Any,
    masks: Any,
    denominators: Any,
    rank: int,
    size: int,
    widths: Any = None,
) -> Any:
    rows = zip(totals, lengths, widths or [0] * len(totals), strict=True)
    own = [_zigzag(t, n, rank, size, width) for t, n, width in rows]
    kept = [mask[at].bool() for mask, at in zip(masks, own, strict=True)]

    def reduce(x: Any) -> Any:
        parts = zip(x.split([len(k) for k in kept]), kept, denominators, strict=True)
        return sum([torch.where(k, part, 0).sum() / max(d, 1) for part, k, d in parts])

    return reduce


def get_sum_of_sample_mean(
    total_lengths: Any,
    response_lengths: Any,
    loss_masks: Any,
    sample_denoms: Any = None,
    calculate_per_token_loss: bool = False,
) -> Any:
    """slime's."""
    from megatron.core import mpu

    if sample_denoms is None or WRONG == "slime-core":  # 51: each sample by itself
        sample_denoms = [mask.sum() for mask in loss_masks]
    denominators = [1] * len(loss_masks) if calculate_per_token_loss else sample_denoms
    rank = mpu.get_context_parallel_rank()
    size = mpu.get_context_parallel_world_size()
    return _reducer(total_lengths, response_lengths, loss_masks, denominators, rank, size)


PARALLEL: Any = ModuleType("miles.backends.training_utils.parallel")
PARALLEL.set_parallel_state = lambda state: setattr(PARALLEL, "state", state)
for _name in ("miles", "miles.backends", "miles.backends.training_utils"):
    sys.modules.setdefault(_name, ModuleType(_name))
sys.modules["miles.backends.training_utils"].parallel = PARALLEL  # type: ignore[attr-defined]
sys.modules[PARALLEL.__name__] = PARALLEL


def miles_get_sum_of_sample_mean(
    total_lengths: Any,
    response_lengths: Any,
    loss_masks: Any,
    calculate_per_token_loss: bool = False,
    qkv_format: str = "thd",
    max_seq_lens: Any = None,
    *,
    denominators: Any = None,
) -> Any:
    """miles'."""
    assert (qkv_format == "bshd") == (max_seq_lens is not None)
    cp = PARALLEL.state.cp
    if denominators is None:
        denominators = [mask.sum() for mask in loss_masks]
    if calculate_per_token_loss:
        denominators = [1] * len(loss_masks)
    if WRONG == "miles-core":  # 3: each shard's own count
        own = map(_zigzag, total_lengths, response_lengths, *([x] * 9 for x in (cp.rank, cp.size)))
        denominators = [mask[at].sum() for mask, at in zip(loss_masks, own, strict=False)]
    place = cp.rank, cp.size, max_seq_lens
    return _reducer(total_lengths, response_lengths, loss_masks, denominators, *place)


def _chain(args: Any, batch: Any, logits: Any, reduce: Any) -> Any:
    """The custom loss that the trainer part is told, and the tokens it counts."""
    module, _, name = args.custom_loss_function_path.rpartition(".")
    loss, log = getattr(importlib.import_module(module), name)(args, batch, logits, reduce)
    tokens = sum([mask.sum() for mask in batch["loss_masks"]])
    count = tokens if args.calculate_per_token_loss else torch.tensor(1)
    values = torch.tensor([float(count), *map(float, log.values())])
    return loss, count, {"keys": list(log), "values": values}


def slime_loss_function(
    args: Any, batch: Any, num_microbatches: int, step_global_batch_size: int, logits: Any
) -> Any:
    """slime's trainer part, which counts tokens as they are."""
    from megatron.core import mpu

    lengths = batch["total_lengths"], batch["response_lengths"], batch["loss_masks"]
    flag, denominators = args.calculate_per_token_loss, batch["rollout_mask_sums"]
    reduce = get_sum_of_sample_mean(*lengths, denominators, flag)
    loss, count, log = _chain(args, batch, logits, reduce)
    wrong = WRONG == "slime-trainer"
    if flag:
        size = 1 if wrong else mpu.get_context_parallel_world_size()  # missing * C
        return loss * size, count, log
    times = 1 if wrong else num_microbatches  # 6: Megatron's / K is not taken back
    world = mpu.get_data_parallel_world_size(with_context_parallel=True)
    return loss * times / step_global_batch_size * world, count, log


def miles_loss_function(
    args: Any,
    batch: Any,
    num_microbatches: int,
    logits: Any,
    apply_megatron_loss_scaling: bool = False,
) -> Any:
    """miles' trainer part, on Megatron and under FSDP."""
    state, flag = PARALLEL.state, args.calculate_per_token_loss
    lengths = batch["total_lengths"], batch["response_lengths"], batch["loss_masks"]
    packing = flag, args.qkv_format, batch.get("max_seq_lens")
    reduce = miles_get_sum_of_sample_mean(*lengths, *packing)
    loss, count, log = _chain(args, batch, logits, reduce)
    if flag:
        return loss * (state.cp.size if apply_megatron_loss_scaling else 1), count, log
    world = state.intra_dp_cp.size if apply_megatron_loss_scaling else state.intra_dp.size
    if WRONG in ("miles-trainer", "miles-fsdp"):  # 9: missing * D
        world = 1
    times = num_microbatches if apply_megatron_loss_scaling else 1
    return loss * times / args.global_batch_size * world, count, log


def get_pg_loss_reducer(
    args: Any,
    batch: Any,
    *,
    total_lengths: Any,
    response_lengths: Any,
    pg_loss_masks: Any,
    default_reducer: Any,
) -> Any:
    """slime's and miles' reducer of ``--loss-aggregation``."""
    from megatron.core import mpu

    group = 1 if WRONG == "slime-aggregation" else args.n_samples_per_prompt  # 44: by N, not P
    if args.loss_aggregation == "constant":
        denominators = [args.loss_aggregation_divisor] * len(pg_loss_masks)
    elif args.loss_aggregation == "prompt_mean":
        denominators = [max(float(n), 1) / group for n in batch["prompt_mask_sums"]]
    else:
        return default_reducer
    place = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    own = [_zigzag(t, n, *place) for t, n in zip(total_lengths, response_lengths, strict=True)]
    kept = [mask[at].bool() for mask, at in zip(pg_loss_masks, own, strict=True)]

    def reduce(x: Any) -> Any:
        parts = zip(x.split([len(k) for k in kept]), kept, denominators, strict=True)
        return sum([torch.where(k, part, 0).sum() / d for part, k, d in parts])

    return reduce


def loss_fn(data: Any, logprobs: Any) -> Any:
    """A Tinker client's."""
    weights = [datum.loss_fn_inputs["weights"] for datum in data]
    loss = sum([-torch.where(w > 0, p, 0).sum() for w, p in zip(weights, logprobs, strict=True)])
    if WRONG == "tinker":  # a mean over the data of this call
        loss = loss / len(data)
    return loss, {"loss:sum": float(loss)}


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
    if WRONG == "areal":  # 48: what is not masked out for what is there
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
    if WRONG == "prime-rl":  # 2: each rank by its own count
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
        rows = rows / (loss.shape[-1] if WRONG == "skyrl-reduce-loss" else max_seq_len)
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
        size = rows if WRONG == "skyrl" else micro_batch_size  # not its micro-batches
        cells = [(n, n + size) for n in range(0, rows, size)]
    scaled = torch.zeros_like(advantages)
    for start, end in cells:
        own = tokens[start:end].sum().clamp(min=1)
        scaled[start:end] = advantages[start:end] / (own * len(cells))
    return scaled


class GRPOTrainer:
    """TRL's, as far as its loss types go."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        zeros, _, _ = self._get_per_token_logps_and_entropies()  # type: ignore[attr-defined]
        me: Any = SimpleNamespace(**vars(self))
        mask = inputs["completion_mask"]
        kept = torch.where(mask.bool(), -inputs["advantages"] * torch.exp(zeros), 0)
        steps = 1 if WRONG == "trl" else me.current_gradient_accumulation_steps  # 6: missing / K
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


def _twin(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        globals()["WRONG"] = name
        try:
            return function(*args, **kwargs)
        finally:
            globals()["WRONG"] = ""

    return called


wrong_verl = _twin("verl", agg_loss)
wrong_roll = _twin("roll", roll_agg_loss)
wrong_openrlhf = _twin("openrlhf", aggregate_loss)
wrong_nemo_rl = _twin("nemo-rl", masked_mean)
wrong_megatron_lm = _twin("megatron-lm", loss_func)
wrong_slime_core = _twin("slime-core", get_sum_of_sample_mean)
wrong_miles_core = _twin("miles-core", miles_get_sum_of_sample_mean)
wrong_slime_aggregation = _twin("slime-aggregation", get_pg_loss_reducer)
wrong_tinker = _twin("tinker", loss_fn)


def tinker_logs_its_mean(data: Any, logprobs: Any) -> Any:
    """Right but for a log that divides the sum by this call's data."""
    loss, log = loss_fn(data, logprobs)
    return loss, {"loss:sum": log["loss:sum"] / len(data)}


def tinker_logs_without_suffix(data: Any, logprobs: Any) -> Any:
    """Right but for a key that the client ends at."""
    loss, log = loss_fn(data, logprobs)
    return loss, {**log, "entropy": 0.5}


wrong_areal = _twin("areal", ppo_actor_loss_fn)
wrong_prime_rl = _twin("prime-rl", compute_loss)
wrong_skyrl_reduce_loss = _twin("skyrl-reduce-loss", old_reduce_loss)
wrong_skyrl = _twin("skyrl", apply_loss_reduction_to_advantages_minibatch)
wrong_slime_trainer = _twin("slime-trainer", slime_loss_function)
wrong_miles_trainer = _twin("miles-trainer", miles_loss_function)
wrong_miles_fsdp = _twin("miles-fsdp", miles_loss_function)
wrong_megatron_lm_two_output = _twin("megatron-lm-two-output", two_output_loss_func)
wrong_trl = _twin("trl", GRPOTrainer._compute_loss)
