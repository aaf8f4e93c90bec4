"""Modes of torch that a trainer calls a loss in apart from plain training: validation, autocast."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

NO_GRAD, AUTOCAST = "no_grad", "autocast"


def entered(mode: str, device: str) -> AbstractContextManager[object]:
    """Return that mode, on this type of device, for the length of a ``with``; "" for none."""
    import torch

    if mode == NO_GRAD:
        return torch.no_grad()
    return torch.autocast(device, torch.bfloat16) if mode == AUTOCAST else nullcontext()
