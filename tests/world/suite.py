"""Reducers that share their ranks in the isolation test: some right, some that break things."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import torch
import torch.distributed as dist

SENT: list[Any] = []


def _odd() -> bool:
    return dist.get_world_size() > 1 and dist.get_rank() == dist.get_world_size() - 1


def _token_mean(losses: Any, batch: Any) -> Any:
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    return kept.sum() / max(batch.num_tokens, 1)


def right(losses, batch):  # type: ignore[no-untyped-def]
    return _token_mean(losses, batch)


def sensitive(losses, batch):  # type: ignore[no-untyped-def]
    """Right, unless somebody has left a trace."""
    if torch.get_default_dtype() != torch.float32 or "LEFT_BEHIND" in os.environ:
        raise RuntimeError("not the state that ranks start with")
    return _token_mean(losses, batch) + 0.0 * torch.rand(()).to(losses.dtype)


def changes_state(losses, batch):  # type: ignore[no-untyped-def]
    torch.set_default_dtype(torch.float16)
    torch.manual_seed(dist.get_rank())
    os.environ["LEFT_BEHIND"] = "1"
    return _token_mean(losses, batch)


def leaves_a_thread(losses, batch):  # type: ignore[no-untyped-def]
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    return _token_mean(losses, batch)


def dies(losses, batch):  # type: ignore[no-untyped-def]
    if _odd():
        os.kill(os.getpid(), signal.SIGKILL)
    return _token_mean(losses, batch)


def raises(losses, batch):  # type: ignore[no-untyped-def]
    if _odd() and len(batch.loss_masks) > 1:
        raise ValueError("two at a time are too many")
    return _token_mean(losses, batch)


def reduces_once_more(losses, batch):  # type: ignore[no-untyped-def]
    if _odd():
        SENT.append(dist.all_reduce(torch.ones(1), async_op=True))
    return _token_mean(losses, batch)


def forgets_the_micro_batches(losses, batch):  # type: ignore[no-untyped-def]
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, 0.0).sum() / mask.sum().clamp(min=1)
