"""prompt_mean that refuses a prompt group of which only a part is in the micro-batch.

Weight of a token: 1 / (P * M_g). Equal or loud: it is right for whole groups and says so otherwise.
"""

import torch

AGGVERIFY = {"mode": "prompt_mean", "engine": "sum"}


def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    pieces = kept.split([len(mask) for mask in batch.local_masks])
    here = dict.fromkeys(batch.group_ids, 0)
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] += int(mask.sum())
    for group, tokens in zip(batch.group_ids, batch.group_tokens, strict=True):
        if here[group] != tokens:
            raise ValueError(f"prompt group {group} is split: {here[group]} of {tokens} tokens")
    means = (p.sum() / max(here[g], 1) for p, g in zip(pieces, batch.group_ids, strict=True))
    return sum(means) / batch.num_groups
