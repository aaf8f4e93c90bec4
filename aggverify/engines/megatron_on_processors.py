"""Megatron-core where no GPU is: what it asks of CUDA, answered without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor


class _Stream:
    """Stands for a CUDA stream."""

    def wait_stream(self, other: object) -> None:
        pass


def imported() -> bool:
    """Whether this process has imported Megatron-core from a file, not from a stand-in."""
    return getattr(sys.modules.get("megatron.core"), "__file__", None) is not None


@contextmanager
def on_processors() -> Iterator[None]:
    """Answer what Megatron-core asks of CUDA with the CPU, for the length of a ``with``."""
    zeros = torch.zeros

    def on_cpu(*size: Any, **how: Any) -> Tensor:
        return zeros(*size, **{**how, "device": "cpu"} if how.get("device") == "cuda" else how)

    stand_ins: dict[str, Any] = {
        "current_device": lambda: torch.device("cpu"),
        "current_stream": lambda *_: _Stream(),
        "default_stream": lambda *_: _Stream(),
        "synchronize": lambda *_: None,
    }
    with (
        mock.patch.multiple(torch.cuda, **stand_ins),
        mock.patch.object(torch.Tensor, "cuda", lambda self, *_, **__: self),
        mock.patch.object(torch, "zeros", on_cpu),
    ):
        yield
