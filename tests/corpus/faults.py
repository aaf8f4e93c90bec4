"""Reducers with which a step does not get done: they hang, or cut the gradient off."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aggverify.conventions import MicroBatch
from tests.corpus.base import Correct, Mutant
from tests.corpus.parts import kept, over, weighted

if TYPE_CHECKING:
    from torch import Tensor

_cached: list[int] = []


def conditional_collective(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = sum(int(mask.sum()) for mask in batch.local_masks)
    if count:  # a rank without tokens has nothing to add
        over(batch.cp_group, count)
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def conditional_on_rank(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.dp_rank == 0:
        over(batch.dp_group, 1)
    return weighted(losses, batch, [max(n, 1) * batch.num_rollouts for n in batch.rollout_tokens])


def sample_counts_at_tokens(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``[B, T] / [B]``: right for one sample, silent where there are as many as tokens."""
    return _rows_over(losses, batch, (-1,))


def sample_counts_with_a_dimension(losses: Tensor, batch: MicroBatch) -> Tensor:
    """``[B, T] / [B, 1]``."""
    return _rows_over(losses, batch, (-1, 1))


def _rows_over(losses: Tensor, batch: MicroBatch, shape: tuple[int, ...]) -> Tensor:
    import torch

    rows, _ = batch.rows(kept(losses, batch))
    counts = torch.tensor([max(n, 1) for n in batch.rollout_tokens]).reshape(shape)
    return (rows / counts).sum() / batch.num_rollouts


def detached(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses.detach(), batch).sum() / max(batch.num_tokens, 1)


def detached_when_empty(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if not sum(int(mask.sum()) for mask in batch.local_masks):
        return torch.zeros((), dtype=losses.dtype)
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def detached_term(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """The penalty is in the value, and nothing is trained by it."""
    both = kept(losses, batch).sum() + 0.125 * kept(kl.detach(), batch).sum()
    return both / max(batch.num_tokens, 1)


CORRECT = (
    Correct("sample_counts_with_a_dimension", "broadcast over tokens", "sample_mean", "sum"),
)
MUTANTS = (
    Mutant(
        "conditional_collective",
        56,
        "a rank without tokens skips the all-reduce",
        "token_mean",
        "sum",
        ("AGV402", "AGV404"),
        "conditional-collective",
    ),
    Mutant(
        "conditional_on_rank",
        56,
        "only rank 0 joins the all-reduce",
        "sample_mean",
        "sum",
        ("AGV402", "AGV404"),
        "conditional-collective",
    ),
    Mutant(
        "sample_counts_at_tokens",
        27,
        "EasyR1 #596",
        "sample_mean",
        "sum",
        ("AGV401",),
        "samples-at-tokens",
    ),
    Mutant(
        "detached",
        39,
        "gradient through a detached value",
        "token_mean",
        "sum",
        ("AGV501",),
        "no-gradient",
    ),
    Mutant(
        "detached_when_empty",
        25,
        "what slime's and miles' keep-alive terms were added for",
        "token_mean",
        "sum",
        ("AGV501",),
        "no-gradient",
    ),
    Mutant(
        "detached_term",
        39,
        "a KL penalty computed under no_grad, as it is for its log",
        "token_mean",
        "sum",
        ("AGV207",),
        "auxiliary-detached",
    ),
)
