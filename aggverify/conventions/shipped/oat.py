"""The ``PPOLearner.learning_step`` of oat on one micro-batch, on a stand-in for the learner.

It is a masked mean or sum over the tokens of a row, then the mean over rows.
"""

from inspect import unwrap
from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "oat's policy loss",
    "function": "PPOLearner.learning_step",
    "parameters": ["self", "trajectory"],
    "named": True,
    "run_against": [["sail-sg/oat", "c1a074c32", "2026-11-27"]],
    "engine": "accumulated-mean",
    "rows": "padded",
    "gradient_of": "log_probs",
    "modes": {"sample_mean": "grpo", "constant": "drgrpo"},
    "not_claimed": {
        "context-parallel": "rows are whole",
        "contiguous": "rows are whole",
        "gathered": "rows are whole",
        "ragged-micro-batches": "train_batch_size_per_device rows in every micro-batch",
        "fan-out": "a row is a sequence; oat averages over rows",
        "dummy-samples": "a row is a sequence; oat averages over rows",
        "rejection": "the masks are taken as final",
    },
    "notes": [
        "clipping, truncated importance sampling and KL are not exercised: one epoch, beta 0, and "
        "old log-probabilities that are the new ones",
    ],
}


def call(learning_step: Any, log_probs: Any, batch: Any) -> Any:
    known, mask, rows = unwrap(learning_step).__globals__, batch.mask.bool(), len(log_probs)
    handed: list[Any] = []

    def aggregated(*given: Any, **how: Any) -> Any:
        """Return what the learner's ``_init`` chooses."""
        if batch.mode == "drgrpo":
            return known["masked_sum"](*given, constant_normalizer=batch.divisor, **how)
        return known["masked_mean"](*given, **how)

    args = StandIn(
        critic_type=batch.mode,
        **dict.fromkeys(("num_ppo_epochs", "num_samples"), 1),
        **dict.fromkeys(("reward_scale", "temperature"), 1.0),
        train_batch_size_per_device=rows,
        cliprange=0.2,
        beta=0.0,
        tis_c=None,
        reinforce_update=False,
    )
    strategy = StandIn(
        backward=lambda loss, *others: handed.append(loss),
        optimizer_step=lambda *others: None,
        get_gradient_norm=lambda model: 0.0,
        grad_acc_step=1,
    )
    learner = StandIn(
        args=args,
        strategy=strategy,
        **dict.fromkeys(("model", "ref_model", "optimizer", "scheduler")),
        masked_aggregator=aggregated,
        get_completion_mask=lambda *others: torch.nn.functional.pad(mask, (1, 0)),
        compute_monte_carlo_advantages=lambda *others: batch.advantages,
        get_batch_logps=lambda **inputs: (log_probs.float(), mask),
    )
    ids = torch.ones(rows, mask.size(1) + 1, dtype=torch.long)
    trajectory = StandInDict(
        **dict.fromkeys(("input_ids", "attention_mask"), ids),
        prompt_ids_lens=[1] * rows,
        rewards=[[0.0]] * rows,
        action_logprobs=[0.0] * rows,
        loss_masks=[True] * rows,
    )
    # Rows in their order: all of them are one micro-batch.
    with (
        patch("torch.cuda.current_device", lambda: "cpu"),
        patch("numpy.random.permutation", lambda size: torch.arange(size).numpy()),
    ):
        learning_step(learner, trajectory)
    return handed[0]
