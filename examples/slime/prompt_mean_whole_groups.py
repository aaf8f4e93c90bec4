"""prompt_mean as a slime / miles hook, where that can be right at all.

The hook sees no prompt groups. This one relies on a promise: every group has G rollouts of one
sample, stands whole and in order in one micro-batch, and the trainer divides by N = P * G.
"""

from zigzag import local_masks, masked_sums

G = 2
AGGVERIFY = {"mode": "prompt_mean", "group_size": 2}


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    masks = local_masks(total_lengths, response_lengths, loss_masks)
    groups = [loss_masks[i : i + G] for i in range(0, len(loss_masks), G)]
    tokens = [max(sum(int(mask.sum()) for mask in group), 1) for group in groups]

    def reduce(losses):
        sums = masked_sums(losses, masks)
        return sum(G * s / tokens[i // G] for i, s in enumerate(sums))

    return reduce
