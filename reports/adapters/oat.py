"""oat: ``learning_step`` of one micro-batch; DeepSpeed divides by the accumulation steps and
averages over ranks."""

from functools import partial
from types import SimpleNamespace

import numpy
import torch

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "gradient_of": "log_probs",
    "modes": {"sample_mean": "grpo", "constant": "drgrpo"},
}
torch.cuda.current_device = lambda: "cpu"  # what it moves its inputs to
Nothing = type("Nothing", (float,), {"__call__": lambda self, *_: self})
Bag = type("Bag", (SimpleNamespace,), {"__getattr__": lambda self, name: Nothing()})
FIXED = {"num_ppo_epochs": 1, "num_samples": 1, "cliprange": 0.2, "tis_c": None}


def trajectory(mask):
    rows, width = mask.shape
    ids = torch.arange(rows).unsqueeze(-1).expand(rows, width + 1)
    data = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "prompt_ids_lens": []}
    data["action_logprobs"] = [[0.0] * n for n in mask.sum(-1).tolist()]
    return data | {"rewards": [[0.0]] * rows, "loss_masks": [True] * rows}


def call(learning_step, log_probs, batch):
    from oat.utils.ops import masked_mean, masked_sum

    numpy.random.seed(0)  # of the order of rows
    args = Bag(critic_type=batch.mode, train_batch_size_per_device=len(log_probs), **FIXED)
    total = partial(masked_sum, constant_normalizer=batch.divisor)  # as PPOLearner._init
    me = Bag(args=args, masked_aggregator=total if batch.mode == "drgrpo" else masked_mean)
    me.ref_model, me.compute_monte_carlo_advantages = None, lambda *_: batch.advantages
    mask, got = batch.mask.bool(), []
    me.get_completion_mask = lambda *_: torch.nn.functional.pad(mask, (1, 0))
    known = {True: log_probs, False: batch.old_log_probs.float()}  # with gradients, without
    me.get_batch_logps = lambda **i: (known[torch.is_grad_enabled()][i["input_ids"][:, 0]], mask)
    me.strategy = Bag(grad_acc_step=1, backward=lambda loss, *_: got.append(loss))
    learning_step(me, trajectory(mask))
    return got[0]
