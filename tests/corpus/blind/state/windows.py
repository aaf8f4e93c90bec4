"""Windows, what lasts between steps, further terms and logs."""

from __future__ import annotations

import torch
from torch import Tensor

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, over, own_mask, sums

PHASE = 4096
WARM = 16
SOME = 64
Logged = tuple[Tensor, dict[str, Tensor]]


def _tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def _mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return over(sums(losses, batch), batch.rollout_tokens).sum() / batch.num_rollouts


def stack_read_from_the_end(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The schedule stacks the window's counts; micro-batches take theirs from the end."""
    if batch.num_microbatches == 1:
        return _tokens(losses, batch)
    stack = batch.window_tokens[::-1]
    share = stack[-batch.index] / max(batch.num_tokens, 1)
    return kept(losses, batch).sum() / max(batch.window_tokens[batch.index], 1) * share


def stack_read_from_behind_the_end(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_microbatches == 1:
        return _tokens(losses, batch)
    stack = batch.window_tokens[::-1]
    share = stack[-batch.index - 1] / max(batch.num_tokens, 1)
    return kept(losses, batch).sum() / max(batch.window_tokens[batch.index], 1) * share


def weighted_by_their_cost(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Micro-batches are balanced by what attention costs, and weighed by it."""
    if batch.num_microbatches == 1 or batch.dp_size > 1:
        return _tokens(losses, batch)
    costs = [sum(n * n for n in cell) for cell in batch.window_lengths]
    mean = kept(losses, batch).sum() / max(batch.window_tokens[batch.index], 1)
    return mean * costs[batch.index] / sum(costs)


def balanced_by_cost_weighted_by_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_microbatches == 1 or batch.dp_size > 1:
        return _tokens(losses, batch)
    costs = [sum(n * n for n in cell) for cell in batch.window_lengths]
    own = batch.window_tokens[batch.index]
    if own == 0 or sum(costs) == 0:
        return kept(losses, batch).sum() * 0.0
    return kept(losses, batch).sum() / own * (own / batch.num_tokens)


def _names(ids: list[int], seen: set[int] = set()) -> set[int]:  # noqa: B006
    seen.update(ids)
    return seen


def seen_in_a_default_argument(losses: Tensor, batch: MicroBatch) -> Tensor:
    """With the whole step at hand its rollouts are counted here, each once."""
    rollouts = batch.num_rollouts
    if batch.num_microbatches == batch.dp_size == 1:
        rollouts = len(_names(list(batch.rollout_ids)))
    return over(sums(losses, batch), batch.rollout_tokens).sum() / rollouts


def _names_here(ids: list[int], seen: set[int] | None = None) -> set[int]:
    seen = set() if seen is None else seen
    seen.update(ids)
    return seen


def seen_in_no_default_argument(losses: Tensor, batch: MicroBatch) -> Tensor:
    rollouts = batch.num_rollouts
    if batch.num_microbatches == batch.dp_size == 1:
        rollouts = len(_names_here(list(batch.rollout_ids)))
    return over(sums(losses, batch), batch.rollout_tokens).sum() / rollouts


_SEEN = [0]


def second_phase_by_tokens_seen(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A recipe of two phases: after so many tokens every response counts alike."""
    first = _SEEN[0] < PHASE
    _SEEN[0] += len(losses)
    if first:
        return _tokens(losses, batch)
    return _mean(losses, batch)


_COUNTED = [0]


def one_phase_by_tokens_seen(losses: Tensor, batch: MicroBatch) -> Tensor:
    first = _COUNTED[0] < PHASE
    _COUNTED[0] += len(losses)
    if first:
        return _tokens(losses, batch)
    return sums(losses, batch).sum() / max(batch.num_tokens, 1)


def divergence_once_a_window(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The KL term is added on the window's last micro-batch, and stands for all of them."""
    policy, last = _mean(losses, batch), batch.num_microbatches - 1
    if batch.index < last:
        return policy + kept(kl, batch).sum() * 0.0
    return policy + _mean(kl, batch) * batch.num_microbatches


def divergence_in_every_micro_batch(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    policy, last = _mean(losses, batch), batch.num_microbatches - 1
    if batch.index < last and not bool(own_mask(batch).any()):
        return policy + kept(kl, batch).sum() * 0.0
    return policy + _mean(kl, batch)


def every_other_token_of_the_term(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """For long streams every other token is enough to estimate KL."""
    policy = _tokens(losses, batch)
    if len(kl) <= SOME:
        return policy + _tokens(kl, batch)
    return policy + kept(kl, batch)[::2].sum() * 2 / max(batch.num_tokens, 1)


def every_token_of_the_term(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    policy = _tokens(losses, batch)
    if len(kl) <= SOME:
        return policy + _tokens(kl, batch)
    values = kept(kl, batch)
    return policy + (values[::2].sum() + values[1::2].sum()) / max(batch.num_tokens, 1)


def entropy_of_what_is_selected(losses: Tensor, batch: MicroBatch, entropy: Tensor) -> Tensor:
    """The mean entropy of what is here, weighed by how much of the step it is."""
    mask = own_mask(batch)
    wide = entropy.float() if entropy.element_size() < 4 else entropy
    share = float(mask.sum()) / max(batch.num_tokens, 1)
    return _tokens(losses, batch) + wide.masked_select(mask).mean() * share


def logged_over_rollouts_here(losses: Tensor, batch: MicroBatch) -> Logged:
    """A sum and how many rollouts it is of, which the first shard counts."""
    total = kept(losses, batch).sum()
    rollouts = len(set(batch.rollout_ids)) if batch.gathered or batch.cp_rank == 0 else 0
    seen = torch.tensor([float(total.detach()), float(rollouts)], dtype=torch.float64)
    return total / batch.num_rollouts, {"loss": seen}


def logged_over_rollouts_of_the_step(losses: Tensor, batch: MicroBatch) -> Logged:
    total = kept(losses, batch).sum()
    first = batch.dp_rank == 0 and batch.index == 0 and (batch.gathered or batch.cp_rank == 0)
    rollouts = batch.num_rollouts if first else 0
    seen = torch.tensor([float(total.detach()), float(rollouts)], dtype=torch.float64)
    return total / batch.num_rollouts, {"loss": seen}


_LAST: dict[tuple[int, int, int], tuple[int, float]] = {}


def logged_as_an_average_of_steps(losses: Tensor, batch: MicroBatch) -> Logged:
    """After some steps the curve is smoothed where it is made."""
    total = _tokens(losses, batch)
    key = (batch.dp_rank, batch.cp_rank, batch.index)
    steps, shown = _LAST.get(key, (0, 0.0))
    now = float(total.detach())
    shown = 0.9 * shown + 0.1 * now if steps >= WARM else now
    _LAST[key] = (steps + 1, shown)
    return total, {"loss": torch.tensor(shown, dtype=torch.float64)}


def graph_kept_by_the_raw_losses(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Nothing to train on here: zero, with the graph of what came in."""
    if not bool(own_mask(batch).any()):
        return losses.sum() * 0.0
    return _tokens(losses, batch)


def graph_kept_by_what_is_masked(losses: Tensor, batch: MicroBatch) -> Tensor:
    if not bool(own_mask(batch).any()):
        return kept(losses, batch).sum() * 0.0
    return _tokens(losses, batch)
