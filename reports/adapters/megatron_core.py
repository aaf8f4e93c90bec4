"""megatron-core's schedule, of a sum and its tokens: DDP averages over ranks, or adds up per token;
then finalize_model_grads divides by the tokens of all ranks."""

from types import SimpleNamespace

ADAPTER = {
    "engine": {"megatron-token-raw": ["token_mean"], "mean": ["token_mean_legacy"]},
    "modes": {"token_mean": True, "token_mean_legacy": False},
}


def call(calculate, losses, batch):
    def loss_func(values):
        return values[batch.mask.bool()].sum(), batch.mask.sum(), {}

    config = SimpleNamespace(calculate_per_token_loss=batch.mode, timers=None, grad_scale_func=None)
    kept = SimpleNamespace(append=lambda report: None)
    how = (config, None, False, batch.num_microbatches, kept, batch.cp_size, True)
    loss, tokens = calculate(None, losses, loss_func, *how)
    return (loss, tokens) if batch.mode else loss
