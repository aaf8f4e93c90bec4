"""constant as a slime / miles hook; Dr.GRPO: the trainer divides by N (sample path)."""

from zigzag import local_masks, masked_sums

AGGVERIFY = {"mode": "constant", "divisor": 16.0}
DIVISOR = 16.0


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    masks = local_masks(total_lengths, response_lengths, loss_masks)

    def reduce(losses):
        sums = masked_sums(losses, masks)
        return sum(sums) / DIVISOR

    return reduce
