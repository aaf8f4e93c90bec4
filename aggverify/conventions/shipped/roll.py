"""ROLL's ``agg_loss`` with the counts of the step.

Its trainer multiplies what is returned by the data-parallel size and the accumulation steps, which
undoes what its engines divide by.
"""

from typing import Any

ADAPTER = {
    "title": "ROLL",
    "function": "agg_loss",
    "parameters": ["loss_mat", "loss_mask", "loss_agg_mode", "global_valid_samples"],
    "engine": "sum",
    "rows": "padded",
    "width": "step",
    "modes": {
        "token_mean": "token-mean",
        "sample_mean": "seq-mean-token-mean",
        "constant": "seq-mean-token-sum-norm",
        "sequence_sum": "seq-mean-token-sum",
    },
    "never": {
        "prompt_mean": "ROLL passes no prompt groups to agg_loss",
        "constant": "its divisor is the width of the padded rows, which no option sets",
    },
    "not_claimed": {
        "context-parallel": "a row is whole",
        "contiguous": "a row is whole",
        "gathered": "a row is whole",
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
    },
    "notes": [
        "its trainer counts rows with a token only: --policy empty_units=exclude is its reading",
        "clipping, importance ratios and KL estimators around agg_loss are not exercised",
    ],
    "misuses": [{"call": "an unknown loss_agg_mode", "with": {"loss_agg_mode": "token-avg"}}],
    "run_against": [["alibaba/ROLL", "8eb27cc2d", "2026-11-27"]],
}


def call(agg_loss: Any, losses: Any, batch: Any) -> Any:
    return agg_loss(
        losses,
        batch.mask,
        batch.mode,
        batch_num_tokens=batch.num_tokens,
        global_valid_samples=batch.num_valid_samples,
    )
