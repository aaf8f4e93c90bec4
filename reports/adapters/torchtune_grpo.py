"""torchtune's GRPO losses: a step takes all rows of a rank at once; FSDP averages over ranks."""

ADAPTER = {"engine": "mean", "rows": "padded", "gradient_of": "log_probs"}


def call(kind, log_probs, batch):
    mask = batch.mask.bool()
    given = (batch.old_log_probs, log_probs, batch.ref_log_probs)
    old, new, ref = (values.masked_fill(~mask, 1.0) for values in given)
    return kind(kl_coeff=0.0)(old, new, ref, batch.advantages, padding_masks=mask)[0]
