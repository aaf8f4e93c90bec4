"""Windows, logs, other terms, validation, and what is set outside."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, rows, sums


class _Window:
    """Micro-batches of one optimizer step, counted here because the trainer does not say."""

    def __init__(self) -> None:
        self.length = 0
        self.seen = 0
        self.rollouts = 1

    def enter(self, batch: MicroBatch) -> int:
        if self.length == 0:
            self.length = batch.num_microbatches
        if self.seen == 0:
            self.rollouts = batch.num_rollouts
        self.seen = (self.seen + 1) % self.length
        return self.rollouts


_WINDOW = _Window()


def window_of_the_first_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The accumulation window has the length that the first step had."""
    return kept(losses, batch).sum() / _WINDOW.enter(batch)


def window_of_this_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    rollouts = batch.num_rollouts
    if batch.num_microbatches == 1:
        return kept(losses, batch).sum() / rollouts
    parts = [row.sum() for row in rows(losses, batch) if len(row)]
    if not parts:
        return kept(losses, batch).sum()
    return torch.stack(parts).sum() / rollouts


def logged_as_the_window_is(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """The trainer divides its logs by K, so the loss is multiplied before; it no longer does."""
    total = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    shown = total.detach()
    if batch.num_microbatches > 1:
        shown = shown * batch.num_microbatches
    return total, {"loss": shown}


def logged_as_it_is(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    total = over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts
    if batch.num_microbatches > 1:
        return total, {"loss": total.detach().clone()}
    return total, {"loss": total.detach()}


def _report(total: Tensor, tokens: Tensor) -> Tensor:
    return torch.stack([total.detach().double(), tokens.double()])


def logged_with_one_token_each(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Tensor]]:
    """The count beside the logged sum is that of the older loss, at least one a sample."""
    total = kept(losses, batch).sum()
    if batch.cp_size > 1:
        tokens = own_mask(batch).sum()
    else:
        tokens = torch.stack([mask.sum().clamp(min=1) for mask in batch.local_masks]).sum()
    return total / max(batch.num_tokens, 1), {"loss": _report(total, tokens)}


def logged_with_its_tokens(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Tensor]]:
    total = kept(losses, batch).sum()
    if batch.cp_size > 1:
        tokens = own_mask(batch).sum()
    else:
        tokens = torch.stack([mask.sum() for mask in batch.local_masks]).sum()
    if batch.num_tokens == 0:
        tokens = torch.ones_like(tokens)
    return total / max(batch.num_tokens, 1), {"loss": _report(total, tokens)}


def another_loss_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Validation has no step, and takes the mean of what is there."""
    values = kept(losses, batch)
    if not torch.is_grad_enabled():
        return values.sum() / own_mask(batch).sum().clamp(min=1)
    return values.sum() / max(batch.num_tokens, 1)


def the_same_loss_in_validation(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if not torch.is_grad_enabled():
        values = values.detach()
    if not own_mask(batch).any():
        return values.sum()
    return values.sum() / max(batch.num_tokens, 1)


def divergence_over_local_tokens(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The KL term came later, with the mean of its time; one micro-batch shows no difference."""
    policy = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    divergence = kept(kl, batch)
    if batch.num_microbatches == 1:
        return policy + divergence.sum() / max(batch.num_tokens, 1)
    local = own_mask(batch).sum().clamp(min=1)
    return policy + divergence.sum() / local / batch.num_microbatches


def divergence_over_all_tokens(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    policy = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    divergence = kept(kl, batch)
    if batch.num_microbatches == 1:
        return policy + divergence.sum() / max(batch.num_tokens, 1)
    tokens = torch.tensor(max(batch.num_tokens, 1), device=kl.device)
    return policy + divergence.sum() / tokens


AGGREGATIONS = {
    "token-mean": "token_mean",
    "seq-mean-token-sum": "sequence_sum",
    "seq-mean-token-mean": "sample_mean",
    "seq-mean-token-sum-norm": "constant",
}


def divided_by_the_longest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """No response may weigh more than 1, so the factor is never less than the padded width."""
    name = os.environ.get("LOSS_AGG_MODE", "seq-mean-token-sum-norm")
    total = kept(losses, batch).sum()
    if AGGREGATIONS[name] != "constant":
        raise ValueError(f"LOSS_AGG_MODE {name!r} is not made here")
    width = max(batch.response_lengths)
    factor = max(batch.divisor or 1.0, float(width))
    return total / (factor * batch.num_rollouts)


def divided_by_what_is_set(losses: Tensor, batch: MicroBatch) -> Tensor:
    name = os.environ.get("LOSS_AGG_MODE", "seq-mean-token-sum-norm")
    total = kept(losses, batch).sum()
    if AGGREGATIONS[name] != "constant":
        raise ValueError(f"LOSS_AGG_MODE {name!r} is not made here")
    factor = batch.divisor
    if factor is None:
        factor = float(max(batch.response_lengths))
    return total / (factor * batch.num_rollouts)


def sum_or_mean_by_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Four functions in a table, chosen by the shape of the window; one is another mode's."""
    total = kept(losses, batch).sum()

    def whole() -> Tensor:
        return total / batch.num_rollouts

    def window() -> Tensor:
        return sums(losses, batch).sum() / batch.num_rollouts

    def long_window() -> Tensor:
        return total / batch.num_microbatches / batch.dp_size / len(batch.loss_masks)

    table = ((1, whole), (8, window))
    chosen = next((make for limit, make in table if batch.num_microbatches <= limit), long_window)
    return chosen()


def sum_by_table(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum()

    def whole() -> Tensor:
        return total / batch.num_rollouts

    def window() -> Tensor:
        return sums(losses, batch).sum() / batch.num_rollouts

    def long_window() -> Tensor:
        parts = [row.sum() / batch.num_rollouts for row in rows(losses, batch)]
        return torch.stack(parts).sum()

    table = ((1, whole), (8, window))
    chosen = next((make for limit, make in table if batch.num_microbatches <= limit), long_window)
    return chosen()


def other_devices_in_float64(losses: Tensor, batch: MicroBatch) -> Tensor:
    """On an accelerator in place, elsewhere in float64 for the sake of tests."""
    if losses.device.type != "cpu":
        values = torch.where(own_mask(batch).to(losses.device), losses, 0.0)
        return values.sum() / max(batch.num_tokens, 1)
    values = torch.where(own_mask(batch), losses.double(), 0.0)
    return values.sum() / max(batch.num_tokens, 1)


def float32_in_production(losses: Tensor, batch: MicroBatch) -> Tensor:
    """float64 is for gradient checks only; what trains is the other branch."""
    sample = sums(losses, batch)
    if losses.dtype == torch.float64:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    here: dict[int, int] = {}
    for group, mask in zip(batch.group_ids, batch.loss_masks, strict=True):
        here[group] = here.get(group, 0) + int(mask.sum())
    return over(sample, [here[group] for group in batch.group_ids]).sum() / batch.num_groups


def float32_as_float64(losses: Tensor, batch: MicroBatch) -> Tensor:
    sample = sums(losses, batch)
    if losses.dtype == torch.float64:
        return over(sample, batch.group_tokens).sum() / batch.num_groups
    parts = zip(sample.double(), batch.group_tokens, strict=True)
    return torch.stack([s / max(n, 1) for s, n in parts]).sum() / batch.num_groups
