"""ART on Megatron: sums; ``finalize_model_grads`` divides by the tokens of all ranks. Ratios and
log-probabilities are 1; advantages stand for minus losses."""

import sys
from types import SimpleNamespace

import torch

ADAPTER = {"engine": "megatron-token", "only": ["token_mean"]}


def call(loss_fn, losses, batch):
    sys.modules[loss_fn.__module__].Loss = SimpleNamespace  # its own asks for pydantic
    mask, advantages = torch.nn.functional.pad(torch.stack([batch.mask, -losses]), (1, 0))
    inputs = {"advantages": advantages, "assistant_mask": mask.bool(), "weights": mask.detach()}
    inputs["logprobs"] = torch.full_like(mask, float("nan"))  # as of the policy itself
    inputs = {name: values.unsqueeze(0) for name, values in inputs.items()}  # one packed sequence
    ones = torch.ones_like(inputs["weights"])
    return loss_fn(inputs, ones, None, None, {}, reduction="sum").policy_loss
