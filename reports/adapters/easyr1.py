"""EasyR1: its actor weighs a loss by the micro-batch's share of the step's tokens, as AReaL."""

ADAPTER = {
    "engine": "areal",
    "rows": "padded",
    "modes": {"token_mean": "token", "sample_mean": "seq"},
}


def call(average_loss, losses, batch):
    return average_loss(losses, batch.mask.long(), batch.mode)
