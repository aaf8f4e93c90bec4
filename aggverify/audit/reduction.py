"""What the engine does to gradients: one parameter's, on this rank before and in the update after.

The parameter is found in the graph below the losses: its hook sees each backward pass's own
gradient, before any rank's is added to it. What the optimizer is then given is the update.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from aggverify.audit.records import Array

MOST = 1 << 16
"""Elements of the parameter that is compared."""
_NODES = 1 << 14


@dataclass(slots=True)
class Reduction:
    """Of one rank, step by step."""

    _local: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    """By the parameter's shape: what is sharded later is another tensor of the same whole."""
    _hooked: set[int] = field(default_factory=set)

    def watch(self, out: Tensor) -> None:
        """Watch parameters below it that are small enough, and of a shape that no other has."""
        found = [p for p in _leaves(out) if p.numel() <= MOST]
        shapes = [tuple(p.shape) for p in found]
        for parameter, shape in zip(found, shapes, strict=True):
            if shapes.count(shape) == 1 and id(parameter) not in self._hooked:
                self._hooked.add(id(parameter))
                parameter.register_hook(lambda g, shape=shape: self._add(shape, g))

    def _add(self, shape: tuple[int, ...], gradient: Tensor) -> None:
        mine = _part(gradient.detach()).to(torch.float64)
        self._local[shape] = self._local[shape] + mine if shape in self._local else mine.clone()

    def seen(self, optimizer: Any) -> Iterator[dict[str, Array]]:
        """Yield one parameter's gradient before and after; nothing where none is known twice."""
        local, self._local = self._local, {}
        groups = (p for group in optimizer.param_groups for p in group["params"])
        own = [p for p in groups if p.grad is not None and tuple(p.shape) in local]
        shapes = [tuple(p.shape) for p in own]
        once = [p for p in own if shapes.count(tuple(p.shape)) == 1]
        if not once:
            return
        # By its shape, so that every rank chooses the same one.
        chosen = min(once, key=lambda p: tuple(p.shape))
        before, after = local[tuple(chosen.shape)], _part(chosen.grad)
        if after.shape != before.shape and after is not chosen.grad:
            after = chosen.grad.full_tensor()  # sharded since: before, every rank had all of it
        yield {
            "before": _numbers(before),
            "after": _numbers(after),
            "shape": np.array(chosen.shape, dtype=np.int64),
        }


def _part(gradient: Any) -> Tensor:
    """Return the part on this rank of a DTensor, as tensor parallelism's are."""
    mine: Tensor = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    return mine


def _leaves(out: Tensor) -> list[Tensor]:
    nodes, seen, found = [out.grad_fn], set[Any](), []
    while nodes and len(seen) < _NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.append(leaf)
        nodes += [below for below, _ in node.next_functions]
    return found


def _numbers(values: Tensor) -> Array:
    found: Array = values.detach().to("cpu", torch.float64).reshape(-1).numpy()
    return found
