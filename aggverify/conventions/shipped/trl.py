"""TRL's ``GRPOTrainer._compute_loss`` by loss type, on a stand-in for the trainer.

Ratios are 1, advantages stand for minus losses. Generation batches of several steps are to be
claimed.
"""

from collections import defaultdict
from typing import Any

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "TRL's GRPOTrainer",
    "function": "GRPOTrainer._compute_loss",
    "parameters": ["self", "model", "inputs"],
    "named": True,
    "run_against": [["trl", "1.16.0", "2026-11-26"]],
    "engine": "mean",
    "rows": "padded",
    "modes": {
        "token_mean": "dapo",
        "sample_mean": "grpo",
        "constant": "dr_grpo",
        "sequence_sum": "luspo",
        "token_mean_legacy": "bnpo",
    },
    "never": {"prompt_mean": "TRL has no loss type that averages over prompts"},
    "not_claimed": {
        "context-parallel": "rows are whole",
        "contiguous": "rows are whole",
        "gathered": "rows are whole",
        "ragged-micro-batches": "per_device_train_batch_size rows in every micro-batch",
        "dummy-samples": "per_device_train_batch_size rows in every micro-batch",
        "fan-out": "a row is a rollout",
        "rejection": "the mask is taken as final",
        "generations": "steps_per_generation is taken for the accumulation steps, TRL's default",
    },
    "notes": [
        "clipping, importance sampling, KL and entropy terms are not exercised",
        "other loss types (cispo, sapo, vespo) are not run: describe them in an --adapter",
    ],
}


def call(compute_loss: Any, losses: Any, batch: Any) -> Any:
    zeros = torch.zeros_like(losses.detach())
    args = StandIn(delta=None, use_bias_correction_kl=False)
    args.steps_per_generation = batch.num_microbatches * batch.generation_windows
    trainer = StandIn(
        args=args,
        model=StandIn(training=True),
        accelerator=StandIn(
            num_processes=batch.dp_size * batch.cp_size,
            reduce=lambda tensor, **how: tensor,
            gather=lambda tensor: tensor,
        ),
        loss_type=batch.mode,
        max_completion_length=batch.divisor,
        current_gradient_accumulation_steps=batch.num_microbatches,
        _get_per_token_logps_and_entropies=lambda *args, **how: (zeros, zeros, None),
        _metrics=defaultdict(lambda: defaultdict(list)),
        **dict.fromkeys(("beta", "entropy_coef", "epsilon_low", "epsilon_high"), 0.0),
        **dict.fromkeys(("aux_loss_enabled", "use_vllm", "_entropy_bonus_enabled"), False),
        **dict.fromkeys(("off_policy_mask_threshold", "tools"), None),
        top_entropy_quantile=1.0,
        importance_sampling_level="token",
    )
    inputs = StandInDict(
        prompt_ids=zeros[:, :0].long(),
        prompt_mask=zeros[:, :0].long(),
        completion_ids=zeros.long(),
        completion_mask=batch.mask,
        advantages=-losses,
        num_items_in_batch=torch.tensor(batch.generation_tokens),
    )
    return compute_loss(trainer, None, inputs)
