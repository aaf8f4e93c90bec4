"""The reducer of ``--loss-aggregation`` in slime: four modes, chosen by ``args``."""

import sys
from typing import Any

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "slime --loss-aggregation",
    "function": "get_pg_loss_reducer",
    "parameters": ["args", "batch", "total_lengths", "response_lengths", "pg_loss_masks"],
    "run_against": [
        ["THUDM/slime", "1951fa005", "2026-11-26"],
        ["THUDM/slime", "bd9714414", "2026-11-26"],
    ],
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
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
        "validates-arguments": "the trainer validates its arguments once, before it trains "
        "(convention validation)",
    },
    "notes": ["clipping, importance ratios and KL come before it and are not exercised"],
    "misuses": [
        {
            "call": "calculate_per_token_loss in a mode that it contradicts",
            "with": {"args.calculate_per_token_loss": True},
            "modes": ["prompt_mean", "constant"],
        },
        {
            "call": "an unknown loss_aggregation",
            "with": {"args.loss_aggregation": "token-avg"},
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
            "call": "a prompt's count missing",
            "short": ["batch.prompt_mask_sums"],
            "modes": ["prompt_mean"],
        },
        {"call": "a mask missing", "short": ["pg_loss_masks"], "modes": ["prompt_mean"]},
    ],
}


def call(get_pg_loss_reducer: Any, losses: Any, batch: Any) -> Any:
    masks = [mask.int() for mask in batch.loss_masks]
    lengths = {"total_lengths": batch.total_lengths, "response_lengths": batch.response_lengths}
    core = sys.modules[get_pg_loss_reducer.__module__].get_sum_of_sample_mean
    reduce = get_pg_loss_reducer(
        StandIn(
            loss_aggregation=batch.mode,
            loss_aggregation_divisor=batch.divisor,
            n_samples_per_prompt=batch.group_rollouts[0],
            calculate_per_token_loss=batch.per_token,
        ),
        StandInDict(
            prompt_mask_sums=[torch.tensor(float(n)) for n in batch.group_tokens],
            loss_masks=masks,
            **lengths,
        ),
        **lengths,
        pg_loss_masks=masks,
        default_reducer=core(
            batch.total_lengths,
            batch.response_lengths,
            masks,
            sample_denoms=[torch.tensor(float(n)) for n in batch.rollout_tokens],
            calculate_per_token_loss=batch.per_token,
        ),
    )
    return reduce(losses)
