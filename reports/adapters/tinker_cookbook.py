"""tinker-cookbook's weights: the server adds up weight times loss over all data before a step."""

import torch

ADAPTER = {"engine": "sum", "modes": {"token_sum": "none", "sample_mean": "mean"}}


def call(datum_from_model_input_weights, losses, batch):
    from tinker import ModelInput

    made = []
    for mask in batch.local_masks:
        weights = torch.nn.functional.pad(mask.float(), (1, 0))
        text = ModelInput.from_ints([0] * len(weights))
        made.append(datum_from_model_input_weights(text, weights, reduction=batch.mode))
    weights = [datum.loss_fn_inputs["weights"].to_torch() for datum in made]
    return (torch.cat(weights) * losses).sum()
