"""Training steps that compute their loss from logits and labels: right ones, and wrong labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from aggverify.conventions import MicroBatch, TrainContext
from tests.corpus.base import Correct, Mutant

Batches = Sequence[MicroBatch]
Labels = Callable[[MicroBatch], Tensor]


def _step(model: nn.Module, batches: Batches, ctx: TrainContext, labels: Labels) -> None:
    """The mean of the step's cross entropy with these labels, one for each logit."""
    for batch in batches:
        logits = model(batch, logits=True)
        total = functional.cross_entropy(logits.double(), labels(batch), reduction="sum")
        (total / max(batch.num_tokens, 1)).backward()  # type: ignore[no-untyped-call]
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad, group=ctx.dp_cp_group)


def _cut(batch: MicroBatch, whole: Sequence[Tensor]) -> Tensor:
    """Of each sequence what belongs to the rank's logits."""
    return torch.cat([own[p] for own, p in zip(whole, batch.position_ids, strict=True)])


def _shifted(labels: Tensor) -> Tensor:
    return torch.cat([labels[1:], labels.new_tensor([-100])])


def given_labels(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _step(model, batches, ctx, lambda batch: torch.cat(batch.local_labels))


def shifted_then_cut(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _step(model, batches, ctx, lambda batch: _cut(batch, [*map(_shifted, batch.labels)]))


def over_edges_of_masked_prompts(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """A pack shifted as one row: what follows a sequence is a prompt, which has no labels."""

    def labels(batch: MicroBatch) -> Tensor:
        own = _shifted(torch.cat(batch.labels))
        return _cut(batch, own.split([*map(len, batch.labels)]))

    _step(model, batches, ctx, labels)


def gathered_and_masked(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Log-probabilities of all next tokens, those without a label left out afterwards."""
    for batch in batches:
        ids = _cut(batch, [torch.cat([own[1:], own[:1] * 0]) for own in batch.input_ids])
        kept = torch.cat(batch.local_labels) != -100
        logits = model(batch, logits=True).double() / 1.0
        own = -logits.log_softmax(-1).gather(1, ids[:, None])[:, 0]
        loss = torch.where(kept, own, 0.0).sum() / max(batch.num_tokens, 1)
        loss.backward()  # type: ignore[no-untyped-call]
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad, group=ctx.dp_cp_group)


def shifted_in_each_shard(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    def labels(batch: MicroBatch) -> Tensor:
        own = torch.cat(batch.local_labels)
        return torch.cat([own[1:], own.new_tensor([-100])])

    _step(model, batches, ctx, labels)


def cut_then_shifted(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Right on one rank; the last position of a shard gets the first label of its other half."""
    _step(model, batches, ctx, lambda batch: _shifted(_cut(batch, batch.labels)))


def not_shifted(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _step(model, batches, ctx, lambda batch: _cut(batch, batch.labels))


def ids_over_edges(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """A pack shifted as one row, with the mask shifted in the other direction: the last position
    of a sequence is trained on the first token of the next."""

    def labels(batch: MicroBatch) -> Tensor:
        ids = _shifted(torch.cat(batch.input_ids))
        kept = torch.cat(batch.labels) != -100
        own = torch.where(kept, ids, -100).split([*map(len, batch.labels)])
        return _cut(batch, own)

    _step(model, batches, ctx, labels)


def ids_rolled(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Ids are rolled, and trained on where the mask of the responses is, which nobody has."""

    def labels(batch: MicroBatch) -> Tensor:
        pairs = zip(batch.input_ids, batch.labels, strict=True)
        found = [torch.where(own != -100, torch.roll(ids, -1), -100) for ids, own in pairs]
        return _cut(batch, found)

    _step(model, batches, ctx, labels)


def labels_rolled(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Labels are rolled: what comes round from a prompt is no label."""
    _step(model, batches, ctx, lambda batch: _cut(batch, [x.roll(-1) for x in batch.labels]))


def turns_begin_too_early(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """The last token of a prompt is taken for the first of its response."""

    def labels(batch: MicroBatch) -> Tensor:
        found = []
        for ids, own in zip(batch.input_ids, batch.labels, strict=True):
            early = torch.cat([own[1:] != -100, (own[:1] != -100)]) | (own != -100)
            found.append(_shifted(torch.where(early, ids, -100)))
        return _cut(batch, found)

    _step(model, batches, ctx, labels)


MUTANTS = tuple(
    Mutant(name, 72, seen, "token_mean", "train-step", codes, bug, "trainer")
    for name, codes, bug, seen in (
        ("shifted_in_each_shard", ("AGV105",), "shifted-twice", "ms-swift #10185"),
        ("not_shifted", ("AGV105",), "not-shifted", "labels that nobody has shifted"),
        ("ids_rolled", ("AGV105",), "rolled", "torch.roll of ids alone"),
        ("ids_over_edges", ("AGV105",), "shifted-over-an-edge", "verl #6475"),
        ("turns_begin_too_early", ("AGV105",), "trained-on-the-prompt", "masks of chat turns"),
        ("cut_then_shifted", ("AGV105",), "shifted-over-an-edge", "ms-swift #10185"),
    )
)
CORRECT = tuple(
    Correct(name, why, "token_mean", "train-step", "trainer")
    for name, why in (
        ("given_labels", "positions of prompts have logits, and no label"),
        ("shifted_then_cut", "labels of its own"),
        ("labels_rolled", "end to end, where a prompt begins"),
        ("over_edges_of_masked_prompts", "shifts over edges, where nothing is trained"),
        ("gathered_and_masked", "masked positions are compared with the prompt's tokens, times 0"),
    )
)
