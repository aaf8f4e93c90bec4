"""SkyRL's ``reduce_loss`` before March 2026: every micro-batch by itself, gradients averaged."""

from typing import Any

ADAPTER = {
    "title": "SkyRL, reduction per micro-batch (0.1.0)",
    "function": "reduce_loss",
    "parameters": ["loss", "loss_mask", "loss_reduction", "max_seq_len"],
    "run_against": [["skyrl", "0.1.0", "2026-11-26"]],
    "engine": "accumulated-mean",
    "rows": "padded",
    "width": "step",
    "modes": {
        "token_mean": "token_mean",
        "sample_mean": "sequence_mean",
        "constant": "seq_mean_token_sum_norm",
        "token_mean_legacy": "token_mean",
    },
    "always_wrong": {
        "token_mean": "every micro-batch is divided by its own tokens: no parameter has the step's"
    },
    "not_claimed": {
        "context-parallel": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "contiguous": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "gathered": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "ragged-micro-batches": "rows are cut into micro-batches of one fixed size",
        "fan-out": "a row is a sequence; SkyRL averages over rows",
        "dummy-samples": "a row is a sequence; SkyRL averages over rows",
        "rejection": "the masks are taken as final",
        "poison": "SkyRL's reduce_loss multiplies by the mask and its trainer passes finite losses",
        "validates-arguments": "SkyRL's trainer checks its configuration, not its reducer",
    },
    "notes": ["clipping, importance ratios and KL come before it and are not exercised"],
    "misuses": [
        {
            "call": "loss_reduction 'token-avg', which does not exist",
            "with": {"loss_reduction": "token-avg"},
        },
        {"call": "loss_reduction None", "with": {"loss_reduction": None}},
        {"call": "a mask with a column missing", "short": ["loss_mask"]},
        {"call": "max_seq_len None", "with": {"max_seq_len": None}, "modes": ["constant"]},
        {"call": "max_seq_len 0", "with": {"max_seq_len": 0}, "modes": ["constant"]},
        {"call": "max_seq_len -4.0", "with": {"max_seq_len": -4.0}, "modes": ["constant"]},
        {"call": "max_seq_len nan", "nan": ["max_seq_len"], "modes": ["constant"]},
    ],
}


def call(reduce_loss: Any, losses: Any, batch: Any) -> Any:
    return reduce_loss(losses, batch.mask.to(losses.dtype), batch.mode, batch.divisor)
