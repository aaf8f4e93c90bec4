"""torchtitan's RL losses: sums over the tokens of the step; FSDP's division is switched off
(``set_gradient_divide_factor(1.0)``). Ratios are 1; advantages stand for minus losses."""

import torch

ADAPTER = {"engine": "sum", "only": ["token_mean"], "of_a_class": True}


def call(loss, losses, batch):
    zeros, mask = torch.zeros_like(losses.detach()), batch.mask.bool()
    known = {"generator_logprobs": zeros, "advantages": -losses, "loss_mask": mask}
    logits, labels = zeros.unsqueeze(-1), zeros.long()
    return loss(loss.Config())(logits, labels, batch.num_tokens, **known)[0]
