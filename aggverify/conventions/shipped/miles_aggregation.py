"""The reducer of ``--loss-aggregation`` in miles: four modes, chosen by ``args``.

Its place in a parallel state, packed samples or rows of one width.
"""

from typing import Any

import torch

from aggverify.conventions.shipped._miles import core, placed
from aggverify.conventions.stand_ins import StandIn, StandInDict

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
    "run_against": [
        ["radixark/miles", "18fd8d82b", "2026-11-26"],
        ["radixark/miles", "d0be4cc29", "2026-11-26"],
    ],
    "unusual": ["bshd"],
    "not_claimed": {
        "contiguous": "all-gather CP is sliced to zigzag again before the reducer runs",
        "gathered": "losses are never gathered over CP before the reducer runs",
        "rejection": "the masks are taken as final",
        "fan-out": "its trainer counts every sample by itself",
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
    placed(batch)
    masks = [mask.int() for mask in batch.loss_masks]
    lengths = {"total_lengths": batch.total_lengths, "response_lengths": batch.response_lengths}
    form = "bshd" if batch.cp_kind == "bshd" else "thd"
    widths = [batch.rank_width] * len(masks) if form == "bshd" else None
    # as its trainer does: with the flag and no counts, which 1498 takes for two modes
    how = {"calculate_per_token_loss": batch.per_token, "max_seq_lens": widths}
    default = core()(**lengths, loss_masks=masks, qkv_format=form, **how)
    reduce = get_pg_loss_reducer(
        StandIn(
            loss_aggregation=batch.mode,
            loss_aggregation_divisor=batch.divisor,
            n_samples_per_prompt=batch.group_rollouts[0],
            calculate_per_token_loss=batch.per_token,
            qkv_format=form,
        ),
        StandInDict(
            prompt_mask_sums=[torch.tensor(float(n)) for n in batch.group_tokens],
            prompt_group_indices=batch.group_ids,
            loss_masks=masks,
            **lengths,
        ),
        **lengths,
        pg_loss_masks=masks,
        max_seq_lens=widths,
        default_reducer=default,
    )
    return reduce(losses)
