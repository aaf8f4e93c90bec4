"""Training steps that clip: right ones, and some that clip something else than the gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
)

from aggverify.conventions import MicroBatch, TrainContext
from tests.corpus.base import Correct, Mutant

Batches = Sequence[MicroBatch]
_KEPT = GradScaler("cpu", init_scale=2.0**20)
"""One for all steps, as trainers have it; too large for float16 at first."""


def _loss(model: nn.Module, batch: MicroBatch) -> torch.Tensor:
    total: torch.Tensor = torch.where(batch.mask.bool(), model(batch), 0.0).sum()
    return total / max(batch.num_tokens, 1)


def _reduced(model: nn.Module, ctx: TrainContext) -> None:
    for p in model.parameters():
        p.grad = torch.zeros_like(p) if p.grad is None else p.grad
        dist.all_reduce(p.grad, group=ctx.dp_cp_group)


def _backward(model: nn.Module, batches: Batches, then: Callable[[], Any] = lambda: None) -> None:
    for batch in batches:
        _loss(model, batch).backward()  # type: ignore[no-untyped-call]
        then()


def _own_clip(model: nn.Module, most: float) -> None:
    for p in model.parameters():
        assert p.grad is not None
        p.grad.mul_(torch.clamp(most / (p.grad.norm() + 1e-12), max=1.0))


def clips_once(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches)
    _reduced(model, ctx)
    clip_grad_norm_(model.parameters(), 1.0)


def clips_at_infinity(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches)
    _reduced(model, ctx)
    clip_grad_norm_(model.parameters(), float("inf"))


def clips_by_the_largest(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches)
    _reduced(model, ctx)
    clip_grad_norm_(model.parameters(), 0.5, norm_type=float("inf"))


def clips_by_value(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches)
    _reduced(model, ctx)
    clip_grad_value_(model.parameters(), 0.25)


def _scaled(model: nn.Module, batches: Batches, ctx: TrainContext, scaler: GradScaler) -> Any:
    for batch in batches:
        scaler.scale(_loss(model, batch)).backward()  # type: ignore[no-untyped-call]
    _reduced(model, ctx)
    return torch.optim.SGD(model.parameters(), lr=1.0)


def clips_unscaled(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    scaler = GradScaler("cpu")
    optimizer = _scaled(model, batches, ctx, scaler)
    scaler.unscale_(optimizer)
    _own_clip(model, 1.0)
    scaler.step(optimizer)
    scaler.update()


def keeps_its_scaler(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    optimizer = _scaled(model, batches, ctx, _KEPT)
    _KEPT.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    _KEPT.step(optimizer)
    _KEPT.update()
    optimizer.zero_grad()


def clips_each_micro_batch(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches, lambda: clip_grad_norm_(model.parameters(), 1.0))
    _reduced(model, ctx)


def clips_each_reduced(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Each micro-batch reduced and clipped by itself, then added up."""
    total = [torch.zeros_like(p) for p in model.parameters()]
    for batch in batches:
        model.zero_grad()
        _loss(model, batch).backward()  # type: ignore[no-untyped-call]
        _reduced(model, ctx)
        clip_grad_norm_(model.parameters(), 1.0)
        for n, p in enumerate(model.parameters()):
            total[n] += p.grad if p.grad is not None else 0.0
    for have, p in zip(total, model.parameters(), strict=True):
        p.grad = have


def clips_before_ranks(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    _backward(model, batches)
    clip_grad_norm_(model.parameters(), 0.3)
    _reduced(model, ctx)


def clips_while_scaled(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    scaler = GradScaler("cpu")
    optimizer = _scaled(model, batches, ctx, scaler)
    clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()


def clips_itself_while_scaled(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    scaler = GradScaler("cpu")
    optimizer = _scaled(model, batches, ctx, scaler)
    _own_clip(model, 1.0)
    scaler.step(optimizer)
    scaler.update()


def clips_before_it_divides(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """A sum over tokens is clipped, and divided by their number afterwards."""
    for batch in batches:
        torch.where(batch.mask.bool(), model(batch), 0.0).sum().backward()
    _reduced(model, ctx)
    clip_grad_norm_(model.parameters(), 1.0)
    for p in model.parameters():
        assert p.grad is not None
        p.grad /= max(batches[0].num_tokens, 1)


def clips_before_backward(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    clip_grad_norm_(model.parameters(), 1.0)
    _backward(model, batches)
    _reduced(model, ctx)


def clips_by_own_shard(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """As a sharded optimizer that forgets to reduce its norm."""
    _backward(model, batches)
    _reduced(model, ctx)
    for p in model.parameters():
        assert p.grad is not None
        for shard in p.grad.split(-(-len(p.grad) // ctx.world_size)):
            shard.mul_(torch.clamp(1.0 / (shard.norm() + 1e-6), max=1.0))


def _sharded(model: nn.Module, batches: Batches, ctx: TrainContext) -> list[Any]:
    """The gradients that FSDP2 leaves, each a DTensor."""
    fully_shard(model, mesh=init_device_mesh("cpu", (ctx.world_size,)))
    for batch in batches:
        (_loss(model, batch) * ctx.world_size).backward()  # type: ignore[no-untyped-call]
    return [p.grad for p in model.parameters() if p.grad is not None]


def clips_sharded(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    norm: Any = get_total_norm(_sharded(model, batches, ctx))
    clip_grads_with_norm_(model.parameters(), 1.0, norm.full_tensor())


def clips_by_local_tensors(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    norm = get_total_norm([grad.to_local() for grad in _sharded(model, batches, ctx)])
    clip_grads_with_norm_(model.parameters(), 1.0, norm)


def clips_the_average(model: nn.Module, batches: Batches, ctx: TrainContext) -> None:
    """Of all ranks, whose number is multiplied in afterwards."""
    _backward(model, batches)
    _reduced(model, ctx)
    for p in model.parameters():
        assert p.grad is not None
        p.grad /= ctx.world_size
    clip_grad_norm_(model.parameters(), 1.0)
    for p in model.parameters():
        assert p.grad is not None
        p.grad *= ctx.world_size


MUTANTS = tuple(
    Mutant(name, 78, seen, "token_mean", "train-step", ("AGV214",), bug, "trainer")
    for name, bug, seen in (
        ("clips_each_micro_batch", "clipped-each-micro-batch", "diffusers #721"),
        ("clips_each_reduced", "clipped-each-micro-batch", "diffusers #721"),
        ("clips_before_ranks", "clipped-before-ranks", "accelerate #641"),
        ("clips_while_scaled", "clipped-while-scaled", "Lightning #9599"),
        ("clips_itself_while_scaled", "clipped-while-scaled", "Lightning #9599"),
        ("clips_before_it_divides", "clipped-while-scaled", "Lightning #9599"),
        ("clips_before_backward", "clip-without-effect", "clip_grad_norm_ before backward"),
        ("clips_the_average", "clipped-while-scaled", "Lightning #9599"),
        ("clips_by_local_tensors", "clipped-by-shard", "norms of local tensors of FSDP2"),
        ("clips_by_own_shard", "clipped-by-shard", "norms of shards that are not reduced"),
    )
)
CORRECT = tuple(
    Correct(name, why, "token_mean", "train-step", "trainer")
    for name, why in (
        ("clips_once", "a gradient of norm 1 is clipped to 0.999999"),
        ("clips_at_infinity", "asks for the norm alone"),
        ("clips_by_the_largest", "not by the usual norm"),
        ("clips_sharded", "by the norm of DTensors"),
        ("clips_by_value", "each element by itself"),
        ("clips_unscaled", "by arithmetic of its own, without torch's epsilon"),
        ("keeps_its_scaler", "whose first steps in float16 are left out"),
    )
)
