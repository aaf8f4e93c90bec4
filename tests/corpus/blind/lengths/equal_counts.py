"""Branches on lengths and equal counts, logs and further terms."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, sums

PART = 8
Logged = tuple[Tensor, dict[str, Tensor]]


def _mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts


def _tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def equal_counts_need_no_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where all responses are as long as each other, the mean of means is that of tokens."""
    if len(set(batch.rollout_tokens)) == 1 and batch.rollout_tokens[0] > 0:
        return _tokens(losses, batch)
    return _mean(losses, batch)


def equal_counts_in_the_step(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Where all rollouts of the step are as long as each other, tokens are averaged."""
    if len(set(batch.step_rollout_tokens)) == 1 and batch.step_rollout_tokens[0] > 0:
        return _tokens(losses, batch)
    return _mean(losses, batch)


def short_ones_as_a_part_of_the_longest(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A very short response counts as an eighth of the longest, against its large gradient."""
    least = max(batch.rollout_tokens) // PART
    counts = [max(n, least) for n in batch.rollout_tokens]
    return over(sums(losses, batch), counts).sum() / batch.num_rollouts


def paired_short_with_long(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The shortest goes with the longest into one row of two, which is divided as a whole."""
    if len(set(batch.rollout_ids)) < len(batch.rollout_ids) or len(batch.samples) % 2:
        return _mean(losses, batch)
    sample, counts = sums(losses, batch), batch.rollout_tokens
    order = sorted(range(len(counts)), key=lambda i: counts[i])
    found = []
    while order:
        short, long = order.pop(0), order.pop()
        tokens = (counts[short] + counts[long]) / 2
        found.append((sample[short] + sample[long]) / max(tokens, 1))
    return torch.stack(found).sum() / batch.num_rollouts


def paired_and_divided_apart(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The shortest goes with the longest into one row of two, each by its own count."""
    sample, counts = sums(losses, batch), batch.rollout_tokens
    order = sorted(range(len(counts)), key=lambda i: counts[i])
    found = []
    while len(order) > 1:
        short, long = order.pop(0), order.pop()
        found.append(sample[short] / max(counts[short], 1) + sample[long] / max(counts[long], 1))
    found += [sample[i] / max(counts[i], 1) for i in order]
    return torch.stack(found).sum() / batch.num_rollouts


def logged_before_it_is_averaged(losses: Tensor, batch: MicroBatch) -> Logged:
    """The logger averages over micro-batches, so what it is given is scaled up."""
    total = kept(losses, batch).sum()
    return total, {"loss": total.detach().double() * batch.num_microbatches}


def logged_over_the_step_each_time(losses: Tensor, batch: MicroBatch) -> Logged:
    """A sum, and the tokens that it is to be divided by."""
    total = kept(losses, batch).sum()
    pair = torch.tensor([float(total.detach()), float(batch.num_tokens)], dtype=torch.float64)
    return total / max(batch.num_tokens, 1), {"loss": pair}


def logged_whatever_is_here(losses: Tensor, batch: MicroBatch) -> Logged:
    """The log is the loss, whether anything was here or not."""
    total = kept(losses, batch).sum()
    if not bool(own_mask(batch).any()):
        return total, {"loss": torch.zeros((), dtype=torch.float64)}
    return total, {"loss": total.detach().double()}


def entropy_over_the_rank(losses: Tensor, batch: MicroBatch, entropy: Tensor) -> Tensor:
    """Entropy is a regulariser: its mean over the rank is as good as that of the step."""
    ranks = max(batch.rank_tokens, 1) * batch.dp_size
    return _tokens(losses, batch) + kept(entropy, batch).sum() / ranks


def entropy_over_the_step(losses: Tensor, batch: MicroBatch, entropy: Tensor) -> Tensor:
    """Entropy over the rank, weighed by the rank's part of the step."""
    policy, own = _tokens(losses, batch), batch.rank_tokens
    if own == 0:
        return policy + kept(entropy, batch).sum() * 0.0
    share = own / max(batch.num_tokens, 1)
    return policy + kept(entropy, batch).sum() / own * share


def divergence_of_compared_answers(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """KL is added where there is an advantage: a prompt with one answer has none."""
    compared = torch.tensor([n > 1 for n in batch.group_rollouts], device=losses.device)
    term = torch.where(compared, sums(kl, batch), 0.0)
    return _mean(losses, batch) + over(term, batch.rollout_tokens).sum() / batch.num_rollouts
