"""transformers' loss of a causal model; Trainer.compute_loss multiplies it by the processes."""

from aggverify.conventions.shipped import hf_trainer

ADAPTER = {"engine": "mean", "rows": "whole"}


def call(causal_lm_loss, losses, batch):
    model, inputs = hf_trainer.model_and_inputs(losses, batch)
    labels, items = inputs.pop("labels"), hf_trainer.num_items_in_batch(batch, losses.device)
    logits = model(**inputs).logits
    loss = causal_lm_loss(logits, labels, vocab_size=2, num_items_in_batch=items)
    return hf_trainer.in_our_losses(loss * batch.dp_size, losses)
