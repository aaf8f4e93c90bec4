"""open-instruct: one count for an accumulation; times the ranks that DeepSpeed divides by."""

ADAPTER = {"engine": "sum", "rows": "padded", "only": ["token_mean"]}


def call(masked_mean, losses, batch):
    return masked_mean(losses, batch.mask.bool(), None, float(batch.num_tokens))
