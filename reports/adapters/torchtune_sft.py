"""torchtune's cross entropies: a loss times its tokens, gradients over the tokens of all ranks."""

import torch

from aggverify.conventions.shipped.hf_trainer import in_our_losses, model_and_inputs

ADAPTER = {"engine": "megatron-token-raw", "rows": "whole"}


def call(kind, losses, batch):
    model, inputs = model_and_inputs(losses, batch)
    labels = inputs.pop("labels").roll(-1, 1)
    loss, outputs, tokens = kind(), model(**inputs).logits, batch.mask.sum()
    if hasattr(loss, "linear_projection"):
        loss.linear_projection = torch.nn.Identity()
    else:
        outputs = outputs.chunk(loss.num_output_chunks, dim=1)
    return in_our_losses(loss(outputs, labels) * tokens, losses), tokens
