"""ART: on Megatron sums, divided by the tokens of all ranks; on one card a mean of packed rows."""

import sys
from types import SimpleNamespace

import torch

ADAPTER = {"engine": ["megatron-token", "accumulated-mean"], "only": ["token_mean"]}


def call(loss_fn, losses, batch):
    sys.modules[loss_fn.__module__].Loss = SimpleNamespace  # its own asks for pydantic
    mask, advantages = torch.nn.functional.pad(torch.stack([batch.mask, -losses]), (1, 0))
    inputs = {"advantages": advantages, "assistant_mask": mask.bool(), "weights": mask.detach()}
    inputs["logprobs"] = torch.full_like(mask, float("nan"))  # as of the policy itself
    inputs = {name: values.unsqueeze(0) for name, values in inputs.items()}  # one packed sequence
    ones = torch.ones_like(inputs["weights"])
    reduction = "sum" if batch.per_token else "mean"
    return loss_fn(inputs, ones, None, None, {}, reduction=reduction).policy_loss
