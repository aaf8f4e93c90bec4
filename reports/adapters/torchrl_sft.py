"""torchrl's SFT loss: its recipe, of one device, divides by the gradient accumulation steps."""

from unittest.mock import Mock

ADAPTER = {
    "engine": "accumulated-mean",
    "rows": "padded",
    "modes": {"sample_mean": True, "sequence_sum": False},
}


def call(kind, losses, batch):
    from tensordict import TensorDict, lazy_stack

    mask, rows = batch.mask.bool(), range(len(losses))
    masks = {"all_assistant_mask": mask, "all_attention_mask": mask}
    data = TensorDict({"history": {"full": mask}, "masks": masks}, [len(mask)])
    said = lazy_stack([TensorDict({"log_probs": {"full": -losses[n]}}) for n in rows])
    loss = kind(Mock(return_value=said), Mock(), normalize_by_seq_length=batch.mode)
    return loss(lazy_stack([data[n] for n in rows])).loss_sft
