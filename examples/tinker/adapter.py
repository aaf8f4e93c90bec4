"""A Tinker client that normalises: its function makes the ``weights`` of all data of a step; the
server adds up weight times loss over the calls.

``aggverify check examples/tinker/client.py:prompt_mean_weights --adapter examples/tinker/adapter.py
--mode prompt_mean``
"""

import torch

ADAPTER = {
    "title": "Tinker, weights made by the client",
    "engine": "sum",
    "not_claimed": {
        "context-parallel": "a datum is whole",
        "contiguous": "a datum is whole",
        "gathered": "a datum is whole",
        "poison": "weight times loss is the server's, which multiplies",
        "rejection": "the masks are taken as final",
    },
    "notes": ["clipping, importance ratios and KL of the server's loss are not exercised"],
}


def call(make_weights, losses, batch):
    masks = [mask.tolist() for mask in batch.step_masks]
    weights = make_weights(masks, batch.step_group_ids)
    own = torch.cat([losses.new_tensor(weights[i]) for i in batch.samples])
    return (own * losses).sum()
