"""torchtitan's cross entropy of two-token logits: sums over the tokens of the step; FSDP's
division is switched off (``set_gradient_divide_factor(1.0)``)."""

import torch

ADAPTER = {"engine": "sum", "of_a_class": True}


class Wide(torch.Tensor):
    """Of float64, which its ``float()`` would round."""

    def float(self):
        return self


def call(loss, losses, batch):
    logits = torch.stack([losses, torch.zeros_like(losses)], -1).as_subclass(Wide)
    labels = torch.where(batch.mask.bool(), 0, -100)
    out, _ = loss(loss.Config())(logits, labels, torch.tensor(batch.num_tokens))
    return out.as_subclass(torch.Tensor)
