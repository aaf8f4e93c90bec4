"""The reducer of ``--loss-aggregation`` in miles: four modes, told by ``args``; its place in a
parallel state, packed samples or rows of one width."""

import inspect
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch

ADAPTER = {
    "title": "miles --loss-aggregation",
    "function": "get_pg_loss_reducer",
    "parameters": ["args", "batch", "total_lengths", "pg_loss_masks", "max_seq_lens"],
    "engine": {
        "megatron-sample": ["sample_mean", "prompt_mean", "constant"],
        "megatron-token": ["token_mean"],
    },
    "modes": {
        "sample_mean": "sample_mean",
        "prompt_mean": "prompt_mean",
        "token_mean": "token_mean",
        "constant": "constant",
    },
    "whole_groups": {
        "prompt_mean": "it multiplies by the configured n_samples_per_prompt, the trainer divides "
        "by N: P times that is N only where every prompt group is complete"
    },
    "unusual": ["bshd"],
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
        "validates-arguments": "the trainer validates its arguments once, before it trains "
        "(convention validation)",
    },
    "notes": ["clipping, importance ratios and KL come before it and are not exercised"],
    "misuses": [
        {"call": "an unknown loss_aggregation", "with": {"args.loss_aggregation": "token-avg"}},
        {
            "call": "calculate_per_token_loss in a mode that it contradicts",
            "with": {"args.calculate_per_token_loss": True},
            "modes": ["prompt_mean", "constant"],
        },
        {
            "call": "no loss_aggregation_divisor",
            "with": {"args.loss_aggregation_divisor": None},
            "modes": ["constant"],
        },
        {
            "call": "loss_aggregation_divisor 0",
            "with": {"args.loss_aggregation_divisor": 0},
            "modes": ["constant"],
        },
        {
            "call": "loss_aggregation_divisor -4",
            "with": {"args.loss_aggregation_divisor": -4.0},
            "modes": ["constant"],
        },
        {
            "call": "loss_aggregation_divisor nan",
            "nan": ["args.loss_aggregation_divisor"],
            "modes": ["constant"],
        },
        {
            "call": "no prompt_mask_sums",
            "with": {"batch.prompt_mask_sums": None},
            "modes": ["prompt_mean"],
        },
        {
            "call": "a prompt's count missing",
            "short": ["batch.prompt_mask_sums"],
            "modes": ["prompt_mean"],
        },
    ],
}


def call(get_pg_loss_reducer: Any, losses: Any, batch: Any) -> Any:
    place = {
        "cp": SimpleNamespace(rank=batch.cp_rank, size=batch.cp_size, group=batch.cp_group),
        "intra_dp": SimpleNamespace(rank=batch.dp_rank, size=batch.dp_size, group=batch.dp_group),
    }
    parallel = import_module("miles.backends.training_utils.parallel")
    parallel.set_parallel_state(SimpleNamespace(**place))
    masks = [mask.int() for mask in batch.loss_masks]
    lengths = {"total_lengths": batch.total_lengths, "response_lengths": batch.response_lengths}
    form = "bshd" if batch.cp_kind == "bshd" else "thd"
    widths = [batch.rank_width] * len(masks) if form == "bshd" else None
    core = import_module("miles.backends.training_utils.cp_utils").get_sum_of_sample_mean
    counts = [torch.tensor(float(n), device=losses.device) for n in batch.rollout_tokens]
    known = {"denominators", "sample_denoms"} & set(inspect.signature(core).parameters)
    default = core(
        **lengths,
        loss_masks=masks,
        calculate_per_token_loss=batch.per_token,
        qkv_format=form,
        max_seq_lens=widths,
        **dict.fromkeys(known, counts),
    )
    reduce = get_pg_loss_reducer(
        SimpleNamespace(
            loss_aggregation=batch.mode,
            loss_aggregation_divisor=batch.divisor,
            n_samples_per_prompt=batch.group_rollouts[0],
            calculate_per_token_loss=batch.per_token,
            qkv_format=form,
        ),
        {
            "prompt_mask_sums": [torch.tensor(float(n)) for n in batch.group_tokens],
            "prompt_group_indices": batch.group_ids,
            "loss_masks": masks,
            **lengths,
        },
        **lengths,
        pg_loss_masks=masks,
        max_seq_lens=widths,
        default_reducer=default,
    )
    return reduce(losses)
