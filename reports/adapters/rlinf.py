"""RLinf: its worker divides the loss by the number of micro-batches, whatever rows each has."""

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "modes": {
        "token_mean": "token-mean",
        "sample_mean": "seq-mean-token-mean",
        "sequence_sum": "seq-mean-token-sum",
    },
}


def call(get_loss_agg_func, losses, batch):
    return get_loss_agg_func(batch.mode)(losses, batch.mask.bool())
