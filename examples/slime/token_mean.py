"""token_mean as a slime / miles hook.

Under --calculate-per-token-loss the trainer divides by the token count.
"""

from zigzag import local_masks, masked_sums

AGGVERIFY = {"mode": "token_mean"}


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    masks = local_masks(total_lengths, response_lengths, loss_masks)

    def reduce(losses):
        sums = masked_sums(losses, masks)
        return sum(sums)

    return reduce
