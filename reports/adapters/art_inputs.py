"""ART since 0.5.23: its inputs align themselves; on Megatron sums, on one card a mean of rows."""

import sys

import torch

ADAPTER = {"engine": ["megatron-token", "accumulated-mean"], "only": ["token_mean"]}


def call(loss_fn, losses, batch):
    mask, advantages = torch.nn.functional.pad(torch.stack([batch.mask, -losses]), (1, 0))
    inputs = {"advantages": advantages, "assistant_mask": mask.bool(), "weights": mask.detach()}
    inputs["logprobs"] = torch.full_like(mask, float("nan"))  # as of the policy itself
    inputs["group_ids"] = torch.zeros_like(mask).long()
    inputs = {name: values.unsqueeze(0) for name, values in inputs.items()}  # one packed sequence
    ones = torch.ones_like(inputs["weights"])
    given = sys.modules[loss_fn.__module__].LossInputs(inputs=inputs)
    reduction = "sum" if batch.per_token else "mean"
    return loss_fn(given, ones, None, None, {}, reduction=reduction).policy_loss
