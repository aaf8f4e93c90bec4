"""sample_mean as a slime / miles hook; the trainer divides by N (sample path)."""

from zigzag import local_masks, masked_sums

AGGVERIFY = {"mode": "sample_mean"}


def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    masks = local_masks(total_lengths, response_lengths, loss_masks)

    def reduce(losses):
        sums = masked_sums(losses, masks)
        return sum(s / mask.sum().clamp(min=1) for s, mask in zip(sums, loss_masks, strict=True))

    return reduce
