"""verl's ``agg_loss``: the value is used as it is on FSDP, and times K and C on Megatron."""

from typing import Any

ADAPTER = {
    "title": "verl",
    "function": "agg_loss",
    "parameters": [
        "loss_mat",
        "loss_mask",
        "loss_agg_mode",
        "dp_size",
        "batch_num_tokens",
        "global_batch_size",
        "loss_scale_factor",
    ],
    "run_against": [["verl", "0.9.1", "2026-11-26"]],
    "engine": ["mean", "verl-megatron"],
    "rows": "padded",
    "width": "step",
    "modes": {
        "token_mean": "token-mean",
        "sample_mean": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
        "sequence_sum": "seq-mean-token-sum",
        "token_sum": "token-sum",
    },
    "never": {"prompt_mean": "verl passes no prompt groups to agg_loss"},
    "not_claimed": {
        "context-parallel": "log-probabilities are gathered over sequence parallelism first",
        "contiguous": "log-probabilities are gathered over sequence parallelism first",
        "gathered": "each rank's backward takes its own slice, which no parameter of agg_loss sees",
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
    },
    "misuses": [
        {"call": "an unknown loss_agg_mode", "with": {"loss_agg_mode": "token-avg"}},
        {
            "call": "no batch_num_tokens where dp_size is 2",
            "with": {"dp_size": 2, "batch_num_tokens": None},
            "modes": ["token_mean"],
        },
        {
            "call": "no global_batch_size where dp_size is 2",
            "with": {"dp_size": 2, "global_batch_size": None},
            "modes": ["sample_mean", "constant", "sequence_sum"],
        },
    ],
    "notes": ["clipping, importance ratios and KL estimators around agg_loss are not exercised"],
}


def call(agg_loss: Any, losses: Any, batch: Any) -> Any:
    return agg_loss(
        loss_mat=losses,
        loss_mask=batch.mask,
        loss_agg_mode=batch.mode,
        dp_size=batch.dp_size,
        batch_num_tokens=batch.num_tokens,
        global_batch_size=batch.num_rollouts,
        loss_scale_factor=batch.divisor,
    )
