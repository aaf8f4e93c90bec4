"""torchtitan's RL losses of 0.3.0, on padded rows: sums over the tokens of the step; FSDP's
division is switched off (``set_gradient_divide_factor(1.0)``)."""

import torch

ADAPTER = {"engine": "sum", "rows": "padded", "only": ["token_mean"], "of_a_class": True}


def call(loss, losses, batch):
    zeros, mask = torch.zeros_like(losses.detach()), batch.mask.bool()
    known = {"generator_logprobs": zeros, "advantages": -losses, "loss_mask": mask}
    logits, labels = zeros.unsqueeze(-1), zeros.long()
    return loss(loss.Config())(logits, labels, batch.num_tokens, **known)[0]
