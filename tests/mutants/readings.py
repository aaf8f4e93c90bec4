"""Reducers that are right under another reading of the policy (all for the plain sum engine)."""

import torch


def _sums(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return [piece.sum() for piece in kept.split([len(mask) for mask in batch.local_masks])]


def _valid(batch):
    return max(sum(n > 0 for n in batch.step_rollout_tokens), 1)


def empty_rollouts_left_out(losses, batch):
    pairs = zip(_sums(losses, batch), batch.rollout_tokens, strict=True)
    return sum(s / max(n, 1) for s, n in pairs) / _valid(batch)


def each_sample_by_itself(losses, batch):
    pairs = zip(_sums(losses, batch), batch.loss_masks, strict=True)
    return sum(s / max(int(mask.sum()), 1) for s, mask in pairs) / batch.num_rollouts


def divided_by_valid_rollouts(losses, batch):
    return sum(_sums(losses, batch)) / (batch.divisor * _valid(batch))


def divided_by_the_divisor_alone(losses, batch):
    return sum(_sums(losses, batch)) / batch.divisor


def groups_counted_by_size(losses, batch):
    pairs = zip(_sums(losses, batch), batch.group_tokens, strict=True)
    return sum(s / max(n, 1) for s, n in pairs) / (batch.num_rollouts / 2)
