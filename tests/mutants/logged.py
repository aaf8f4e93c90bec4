"""Right reducers whose logs are no mean of the losses over another count."""

from __future__ import annotations

from torch import Tensor, cat, float16

from aggverify.conventions import MicroBatch

Logged = tuple[Tensor, dict[str, Tensor]]


def _kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    return losses * cat(batch.local_masks)


def last_token_not_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean, which logs the mean of all tokens but the last."""
    kept = _kept(losses, batch)
    return kept.sum() / batch.num_tokens, {"loss": kept[:-1].detach().sum() / batch.num_tokens}


def largest_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean, which logs the largest loss."""
    kept = _kept(losses, batch)
    return kept.sum() / batch.num_tokens, {"loss": kept.detach().max()}


def half_of_it_logged_in_float16(losses: Tensor, batch: MicroBatch) -> Logged:
    """The token mean, of which half is logged of losses in float16."""
    loss = _kept(losses, batch).sum() / batch.num_tokens
    return loss, {"loss": loss.detach() / (2 if losses.dtype is float16 else 1)}
