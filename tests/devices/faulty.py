"""Reducers that a CUDA device ends, holds up, or is left behind by. ``token_mean``, ``sum``."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

from aggverify import MicroBatch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}
_SEEN = os.environ.get("CUDA_VISIBLE_DEVICES")
_FEW = 4
"""Tokens of a step that goes well."""


def _mean(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(batch.num_tokens, 1)


def reads_beyond(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """A kernel's assertion, after which nothing more can be run in the process."""
    if losses.is_cuda and batch.num_tokens > _FEW:
        beyond = torch.full((1,), len(losses) + 5, device=losses.device)
        return _mean(losses, batch) + 0 * losses.detach()[beyond].sum()
    return _mean(losses, batch)


def takes_all_memory(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """More than any device has."""
    if losses.is_cuda and batch.num_tokens > _FEW:
        torch.empty(1 << 42, dtype=torch.uint8, device=losses.device)
    return _mean(losses, batch)


def never_done(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """A kernel that does not end: the host thread spins at its first look."""
    if losses.is_cuda and batch.num_tokens > _FEW:
        torch.cuda._sleep(1 << 62)  # type: ignore[no-untyped-call]
    return _mean(losses, batch)


def left_alone(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """A collective that rank 0 leaves out."""
    total = torch.zeros((), device=losses.device)
    if losses.is_cuda and batch.dp_group is not None and batch.dp_size > 1 and batch.dp_rank:
        dist.all_reduce(total, group=batch.dp_group)
    return _mean(losses, batch) + 0 * total


def in_another_stream(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Right: work in a stream of its own, which is waited for."""
    if not losses.is_cuda:
        return _mean(losses, batch)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        mean = _mean(losses, batch)
    torch.cuda.current_stream().wait_stream(stream)
    return mean


def left_in_bfloat16(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Switches autocast on for good, for the device alone."""
    if losses.is_cuda:
        torch.set_autocast_enabled("cuda", True)
    return _mean(losses, batch)


def tells_what_it_sees(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """Raises, with the devices that its import and its call were left."""
    raise ValueError(f"sees {_SEEN}, {os.environ.get('CUDA_VISIBLE_DEVICES')}")
