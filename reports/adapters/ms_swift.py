"""ms-swift's GRPO losses; the Trainer that it inherits from divides by the accumulation steps."""

from functools import partial
from types import SimpleNamespace

import torch

ADAPTER = {"engine": "accumulated-mean", "rows": "padded", "unusual": ["generations"]}
FIXED = {"beta": 0.0, "sdar_loss_coef": 0.0, "epsilon_low": 0.2, "epsilon_high": 0.2}
UNDO = "_undo_gradient_accumulation_scaling"  # since 4.6.0
Bag = type("Bag", (SimpleNamespace,), {"__getattr__": lambda self, name: None})


def call(compute, losses, batch):
    mask, zeros = batch.mask.bool(), torch.zeros_like(losses.detach())
    me = Bag(loss_type="dapo", importance_sampling_level="token", args=Bag(), **FIXED)
    me.model, me.current_gradient_accumulation_steps = Bag(training=True), batch.num_microbatches
    me.accelerator = Bag(num_processes=batch.dp_size, gather_for_metrics=lambda tensor: tensor)
    me._get_per_token_logps_and_entropies = lambda *args, **how: (zeros, None)
    own = compute.__globals__["GRPOTrainer"]
    vars(me)[UNDO] = partial(getattr(own, UNDO, Bag), me)
    data = Bag(completion_mask=mask, truncated_mask=mask[:, :0].any(-1), advantages=-losses)
    data.num_items_in_batch = torch.tensor(batch.generation_tokens)
    return compute(me, None, {}, data)[0]
