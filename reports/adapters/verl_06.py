"""verl until 0.6: no counts of the step; its trainer divides by the micro-batches."""

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "modes": {
        "token_mean": "token-mean",
        "sequence_sum": "seq-mean-token-sum",
        "sample_mean": "seq-mean-token-mean",
    },
}


def call(agg_loss, losses, batch):
    return agg_loss(losses, batch.mask, batch.mode)
