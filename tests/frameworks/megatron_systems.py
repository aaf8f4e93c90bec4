"""The functions of slime, miles and Megatron-LM, as those of ``systems.py``."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from tests.frameworks.twins import stand_in, twin, wrong


def loss_func(loss_mask: Any, output_tensor: Any) -> Any:
    """Megatron-LM's, with three outputs."""
    loss = torch.where(loss_mask.bool(), output_tensor, 0).sum()
    tokens = loss_mask.sum().to(torch.int)
    if wrong("megatron-lm"):  # 18, before three outputs: a local mean, and its count
        loss = loss / tokens.clamp(min=1)
    report = torch.stack([loss.detach(), tokens.to(loss.dtype)])
    return loss, tokens, {"lm loss": report}


def two_output_loss_func(loss_mask: Any, output_tensor: Any) -> Any:
    """Megatron-LM's, with two outputs."""
    from megatron.core import mpu

    tokens = loss_mask.sum()
    if mpu.get_context_parallel_world_size() > 1 and not wrong("megatron-lm-two-output"):  # 3
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
        return sum([torch.where(k, part, 0).sum() / d for part, k, d in parts])

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

    if sample_denoms is None or wrong("slime-core"):  # 51: each sample by itself
        sample_denoms = [mask.sum() for mask in loss_masks]
    denominators = [1 if calculate_per_token_loss else max(d, 1) for d in sample_denoms]
    rank = mpu.get_context_parallel_rank()
    size = mpu.get_context_parallel_world_size()
    return _reducer(total_lengths, response_lengths, loss_masks, denominators, rank, size)


PARALLEL: Any = stand_in("miles.backends.training_utils.parallel")
PARALLEL.set_parallel_state = lambda state: setattr(PARALLEL, "state", state)


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
    if wrong("miles-core"):  # 3: each shard's own count
        own = map(_zigzag, total_lengths, response_lengths, *([x] * 9 for x in (cp.rank, cp.size)))
        denominators = [mask[at].sum() for mask, at in zip(loss_masks, own, strict=False)]
    denominators = [max(d, 1) for d in denominators]
    place = cp.rank, cp.size, max_seq_lens
    return _reducer(total_lengths, response_lengths, loss_masks, denominators, *place)


def miles_by_divisor(
    total_lengths: Any,
    response_lengths: Any,
    loss_masks: Any,
    calculate_per_token_loss: bool = False,
    qkv_format: str = "thd",
    max_seq_lens: Any = None,
    divisor: float | None = None,
) -> Any:
    """The same with the divisor of ``--pg-loss-divisor``."""
    told = divisor is not None and not wrong("miles-by-divisor")
    return miles_get_sum_of_sample_mean(
        *(total_lengths, response_lengths, loss_masks),
        *(calculate_per_token_loss, qkv_format, max_seq_lens),
        denominators=[divisor] * len(loss_masks) if told else None,
    )


def _chain(args: Any, batch: Any, logits: Any, reduce: Any) -> Any:
    """The custom loss that the trainer part is told, the tokens it counts, and its log with what
    that is a mean over."""
    module, _, name = args.custom_loss_function_path.rpartition(".")
    loss, log = getattr(importlib.import_module(module), name)(args, batch, logits, reduce)
    tokens, flag = sum([mask.sum() for mask in batch["loss_masks"]]), args.calculate_per_token_loss
    over = float(tokens) if flag else len(batch["loss_masks"])
    values = torch.tensor([over, *map(float, log.values())])
    return loss, tokens if flag else torch.tensor(1), {"keys": list(log), "values": values}


def _added(logs: Any, name: str, group: Any) -> Any:
    numbers = torch.stack([log[name] for log in logs]).sum(0)
    torch.distributed.all_reduce(numbers, group=group)
    return numbers.tolist()


def reduce_train_step_metrics(
    logs: Any,
    *,
    calculate_per_token_loss: bool,
    step_global_batch_size: int,
    cp_size: int,
    dp_with_cp_group: Any,
) -> Any:
    """What slime makes of its logs."""
    count, *values = _added(logs, "values", dp_with_cp_group)
    if not calculate_per_token_loss:
        count, cp_size = step_global_batch_size, 1
    every = zip(logs[0]["keys"], values, strict=True)
    return {key: v * cp_size / max(count, 1) for key, v in every}


def aggregate_train_losses(logs: Any, num_rollouts: int | None = None) -> Any:
    """What miles makes of its logs, and its fork, where each key has a count."""
    [group], size = PARALLEL.state.effective_dp_cp.groups_inner_to_outer, PARALLEL.state.cp.size
    values = _added(logs, "values", group)
    if "normalizers" in logs[0]:
        counts = _added(logs, "normalizers", group)
    else:
        count, *values = values
        counts = [count] * len(values)
        if num_rollouts is not None:
            counts, size = [num_rollouts] * len(values), 1
    every = zip(logs[0]["keys"], values, counts, strict=True)
    return {key: v * size / max(n, 1) for key, v, n in every}


SLIME: Any = stand_in("slime.backends.megatron_utils.cp_utils")
SLIME.reduce_train_step_metrics = reduce_train_step_metrics
CORE: Any = stand_in("miles.backends.training_utils.cp_utils")
CORE.get_sum_of_sample_mean = miles_get_sum_of_sample_mean
LOGS: Any = stand_in("miles.backends.training_utils.log_utils")
LOGS.aggregate_train_losses = aggregate_train_losses


def slime_loss_function(
    args: Any, batch: Any, num_microbatches: int, step_global_batch_size: int, logits: Any
) -> Any:
    """slime's trainer part, which counts tokens as they are."""
    from megatron.core import mpu

    lengths = batch["total_lengths"], batch["response_lengths"], batch["loss_masks"]
    flag, denominators = args.calculate_per_token_loss, batch["rollout_mask_sums"]
    reduce = get_sum_of_sample_mean(*lengths, denominators, flag)
    loss, count, log = _chain(args, batch, logits, reduce)
    broken = wrong("slime-trainer")
    if flag:
        size = 1 if broken else mpu.get_context_parallel_world_size()  # missing * C
        return loss * size, count, log
    times = 1 if broken else num_microbatches  # 6: Megatron's / K is not taken back
    world = mpu.get_data_parallel_world_size(with_context_parallel=True)
    return loss * times / step_global_batch_size * world, count, log


def miles_loss_function(
    args: Any,
    batch: Any,
    num_microbatches: int,
    logits: Any,
    apply_megatron_loss_scaling: bool = False,
    num_rollouts: int | None = None,
) -> Any:
    """miles' trainer part, on Megatron and under FSDP."""
    state, flag = PARALLEL.state, args.calculate_per_token_loss
    lengths = batch["total_lengths"], batch["response_lengths"], batch["loss_masks"]
    packing = flag, args.qkv_format, batch.get("max_seq_lens")
    denominators = batch.get("rollout_mask_sums")
    reduce = miles_get_sum_of_sample_mean(*lengths, *packing, denominators=denominators)
    loss, count, log = _chain(args, batch, logits, reduce)
    if flag:
        return loss * (state.cp.size if apply_megatron_loss_scaling else 1), count, log
    world = state.intra_dp_cp.size if apply_megatron_loss_scaling else state.intra_dp.size
    if wrong("miles-trainer", "miles-fsdp"):  # 9: missing * D
        world = 1
    times = num_microbatches if apply_megatron_loss_scaling else 1
    return loss * times / (num_rollouts or args.global_batch_size) * world, count, log


LOSSES: Any = stand_in("miles.backends.training_utils.loss_hub.losses")
LOSSES.get_log_probs_and_entropy = None


def miles_tinker_loss_function(
    args: Any,
    batch: Any,
    num_microbatches: int,
    logits: Any,
    apply_megatron_loss_scaling: bool = False,
    num_rollouts: int | None = None,
) -> Any:
    """miles' trainer part for the Tinker API, on Megatron."""
    state, loss = PARALLEL.state, 0 * logits.sum()
    found = LOSSES.get_log_probs_and_entropy(logits, args=args)["log_probs"]
    for n, log_probs in enumerate(found):
        place = batch["total_lengths"][n], batch["response_lengths"][n], state.cp.rank
        mask = batch["loss_masks"][n][_zigzag(*place, state.cp.size)]
        if batch["tinker_loss_by_lane"][batch["tinker_operation_lanes"][n]] == CROSS_ENTROPY:
            losses = -log_probs * batch["loss_weights"][n]
        else:
            ratio = torch.exp(log_probs - batch["rollout_log_probs"][n])
            losses = -ratio * batch["advantages"][n]
        loss = loss + torch.where(mask.bool(), losses, 0).sum()
    times = 1 if wrong("miles-tinker") else num_microbatches  # 6: Megatron's / K is not taken back
    return loss * times * state.intra_dp_cp.size, torch.tensor(1), {}


CROSS_ENTROPY = {"loss_fn": "cross_entropy"}


def _validate(args: Any, batch: Any, masks: Any) -> None:
    """What the fork of miles refuses."""
    mode, divisor = args.loss_aggregation, args.loss_aggregation_divisor
    if mode not in ("sample_mean", "prompt_mean", "token_mean", "constant"):
        raise ValueError(f"unknown loss_aggregation {mode!r}")
    if mode in ("prompt_mean", "constant") and args.calculate_per_token_loss:
        raise ValueError(f"calculate_per_token_loss contradicts {mode}")
    if mode == "constant" and not (divisor is not None and divisor > 0):
        raise ValueError(f"loss_aggregation_divisor {divisor!r}")
    if mode == "prompt_mean" and len(masks) != len(batch["prompt_mask_sums"] or ()):
        raise ValueError("a count for each sample, please")


def get_pg_loss_reducer(
    args: Any,
    batch: Any,
    *,
    total_lengths: Any,
    response_lengths: Any,
    pg_loss_masks: Any,
    default_reducer: Any,
) -> Any:
    """slime's reducer of ``--loss-aggregation``."""
    from megatron.core import mpu

    if not wrong("slime-aggregation-unvalidated"):
        _validate(args, batch, pg_loss_masks)
    place = mpu.get_context_parallel_rank(), mpu.get_context_parallel_world_size()
    denominators = _by_the_mode(args, batch, pg_loss_masks)
    told = total_lengths, response_lengths, pg_loss_masks, denominators
    return default_reducer if denominators is None else _reducer(*told, *place)


def miles_get_pg_loss_reducer(
    args: Any,
    batch: Any,
    *,
    total_lengths: Any,
    response_lengths: Any,
    pg_loss_masks: Any,
    max_seq_lens: Any,
    default_reducer: Any,
) -> Any:
    """miles'."""
    _validate(args, batch, pg_loss_masks)
    assert (args.qkv_format == "bshd") == (max_seq_lens is not None)
    cp, denominators = PARALLEL.state.cp, _by_the_mode(args, batch, pg_loss_masks)
    told = total_lengths, response_lengths, pg_loss_masks, denominators
    return (
        default_reducer if denominators is None else _reducer(*told, cp.rank, cp.size, max_seq_lens)
    )


def _by_the_mode(args: Any, batch: Any, masks: Any) -> Any:
    """What each sample's sum is divided by, where that is no default."""
    broken = wrong("slime-aggregation", "miles-aggregation")
    group = 1 if broken else args.n_samples_per_prompt  # 44: by N, not P
    if args.loss_aggregation == "constant":
        return [args.loss_aggregation_divisor] * len(masks)
    if args.loss_aggregation == "prompt_mean":
        return [max(float(n), 1) / group for n in batch["prompt_mask_sums"]]
    return None


wrong_megatron_lm = twin("megatron-lm", loss_func)
wrong_slime_core = twin("slime-core", get_sum_of_sample_mean)
wrong_miles_core = twin("miles-core", miles_get_sum_of_sample_mean)
wrong_miles_tinker = twin("miles-tinker", miles_tinker_loss_function)
wrong_miles_by_divisor = twin("miles-by-divisor", miles_by_divisor)
wrong_slime_aggregation = twin("slime-aggregation", get_pg_loss_reducer)
unvalidated_slime_aggregation = twin("slime-aggregation-unvalidated", get_pg_loss_reducer)
wrong_miles_aggregation = twin("miles-aggregation", miles_get_pg_loss_reducer)
wrong_slime_trainer = twin("slime-trainer", slime_loss_function)
wrong_miles_trainer = twin("miles-trainer", miles_loss_function)
wrong_miles_fsdp = twin("miles-fsdp", miles_loss_function)
wrong_megatron_lm_two_output = twin("megatron-lm-two-output", two_output_loss_func)


def _relogged(function: Any, change: Any) -> Any:
    """The same function with its log changed."""

    def called(*args: Any, **kwargs: Any) -> Any:
        loss, count, log = function(*args, **kwargs)
        change(loss, log)
        return loss, count, log

    return functools.update_wrapper(called, function, updated=())


def _rescaled(loss: Any, log: Any) -> None:
    log["values"][1] = loss.detach()  # 37: as Megatron's schedule gets it


def _own_mean(loss: Any, log: Any) -> None:
    log["values"][2] /= log["values"][0]  # of a micro-batch, added up


def _a_count_each(loss: Any, log: Any) -> None:
    count, *values = log["values"]
    log |= {"values": torch.stack(values), "normalizers": torch.stack([count, 2 * count])}


def _one_each(loss: Any, log: Any) -> None:
    _a_count_each(loss, log)
    log["normalizers"][1] = 1  # of a micro-batch, whatever it holds


slime_logs_rescaled = _relogged(slime_loss_function, _rescaled)
slime_logs_own_means = _relogged(slime_loss_function, _own_mean)
miles_logs_a_count_each = _relogged(miles_loss_function, _a_count_each)
miles_logs_one_each = _relogged(miles_loss_function, _one_each)
