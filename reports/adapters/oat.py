"""oat: ``learning_step`` of one micro-batch; DeepSpeed divides by its passes and by ranks."""

from functools import partial
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy
import torch

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "gradient_of": "log_probs",
    "modes": {"sample_mean": "grpo", "constant": "drgrpo"},
}
ARGS = {"num_ppo_epochs": 1, "num_samples": 1, "reward_scale": 1.0, "cliprange": 0.2, "beta": 0.0}
ARGS |= {"tis_c": None, "temperature": 1.0, "reinforce_update": False}
torch.cuda.current_device, numpy.random.permutation = lambda: "cpu", numpy.arange


def call(learning_step, log_probs, batch):
    from oat.utils.ops import masked_mean, masked_sum

    mask, rows, me = batch.mask.bool(), len(log_probs), MagicMock(ref_model=None)
    me.args = SimpleNamespace(**ARGS, critic_type=batch.mode, train_batch_size_per_device=rows)
    total = partial(masked_sum, constant_normalizer=batch.divisor)  # as PPOLearner._init
    me.masked_aggregator = total if batch.mode == "drgrpo" else masked_mean
    me.compute_monte_carlo_advantages.return_value = batch.advantages
    me.get_completion_mask.return_value = torch.nn.functional.pad(mask, (1, 0))
    me.get_batch_logps.side_effect = lambda **_: (log_probs.float(), mask)
    me.strategy.grad_acc_step, me.strategy.get_gradient_norm.return_value = 1, 0.0
    ids = torch.ones(rows, mask.size(1) + 1, dtype=torch.long)
    data = {"input_ids": ids, "attention_mask": ids, "prompt_ids_lens": []}
    data |= {"action_logprobs": [0.0] * rows, "loss_masks": [True] * rows}
    learning_step(me, data | {"rewards": [[0.0]] * rows})
    return me.strategy.backward.call_args.args[0]
