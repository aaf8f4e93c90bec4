"""tinker's custom loss: its client makes weights of the gradient; the server adds weight * loss."""

from types import SimpleNamespace

import torch

ADAPTER = {"engine": "sum", "only": ["token_mean"]}


def mean(data, log_probs):
    masks = [datum.loss_fn_inputs["weights"].to_torch() for datum in data]
    return -torch.cat(log_probs)[torch.cat(masks).bool()].sum() / max(sum(map(sum, masks)), 1), {}


def call(compute, losses, batch):
    from tinker import Datum, ModelInput, TensorData

    rows = losses.split([*map(len, batch.local_masks)])
    said = [{"logprobs": TensorData.from_torch(-row.detach().float())} for row in rows]
    data = []
    for mask in batch.local_masks:
        given = {"weights": mask.float(), "target_tokens": mask}
        data.append(Datum(model_input=ModelInput.from_ints(mask.tolist()), loss_fn_inputs=given))
    made = compute(data, mean, SimpleNamespace(loss_fn_outputs=said)).data
    weights = [datum.loss_fn_inputs["weights"].to_torch() for datum in made]
    return (torch.cat(weights) * losses).sum()
