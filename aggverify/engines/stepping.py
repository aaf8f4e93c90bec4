"""What a candidate's training step does with torch's own tools, seen while it runs.

Gradients that it clips, and steps that a GradScaler leaves out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook


@dataclass(slots=True)
class Stepping:
    """``clips``: the largest norm and the kind of norm of each ``clip_grad_norm_``, in order."""

    stepped: int = 0
    asked: int = 0
    """Steps that a scaler was asked for."""
    clips: list[tuple[float, float]] = field(default_factory=list)


@contextmanager
def watched(note: Callable[[Optimizer], None], times: float) -> Iterator[Stepping]:
    """``note`` is called with an optimizer that has stepped.

    Scalers begin with ``times`` their scale, which changes no update that is right.
    """
    seen = Stepping()

    def post(optimizer: Optimizer, *_: object) -> None:
        note(optimizer)
        seen.stepped += 1

    hook = register_optimizer_step_post_hook(post)
    try:
        with _scalers(seen, times), _clips(seen):
            yield seen
    finally:
        hook.remove()


@contextmanager
def _scalers(seen: Stepping, times: float) -> Iterator[None]:
    rescaled: list[GradScaler] = []
    scale, step = GradScaler.scale, GradScaler.step

    @functools.wraps(scale)
    def scaled(self: GradScaler, *args: Any, **named: Any) -> Any:
        if times != 1.0 and not any(one is self for one in rescaled):
            rescaled.append(self)
            _multiply(self, times)
        return scale(self, *args, **named)

    @functools.wraps(step)
    def stepped(self: GradScaler, *args: Any, **named: Any) -> Any:
        out = step(self, *args, **named)
        seen.asked += 1
        return out

    with _patched(GradScaler, scale=scaled, step=stepped):
        yield
    for one in rescaled:
        _multiply(one, 1 / times)


def _multiply(scaler: GradScaler, times: float) -> None:
    state = scaler.state_dict()
    if state:  # empty for a scaler that is not enabled
        scaler.load_state_dict({**state, "scale": state["scale"] * times})


@contextmanager
def _clips(seen: Stepping) -> Iterator[None]:
    """Patch what ``clip_grad_norm_`` calls: the candidate may hold that function itself already."""
    norm = getattr(clip_grad, "_get_total_norm", None)
    clip = getattr(clip_grad, "_clip_grads_with_norm_", None)
    if norm is None or clip is None:
        yield
        return
    norm_types = [2.0]

    @functools.wraps(norm)
    def normed(tensors: Any, norm_type: float = 2.0, *args: Any, **named: Any) -> Any:
        norm_types.append(float(norm_type))
        return norm(tensors, norm_type, *args, **named)

    @functools.wraps(clip)
    def clipped(parameters: Any, max_norm: float, *args: Any, **named: Any) -> Any:
        seen.clips.append((float(max_norm), norm_types[-1]))
        return clip(parameters, max_norm, *args, **named)

    with _patched(clip_grad, _get_total_norm=normed, _clip_grads_with_norm_=clipped):
        yield


@contextmanager
def _patched(holder: Any, **functions: Any) -> Iterator[None]:
    before = {name: getattr(holder, name) for name in functions}
    for name, function in functions.items():
        setattr(holder, name, function)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(holder, name, function)


def everywhere(left_out: bool, device: torch.device) -> bool:
    """Whether every rank's scaler has left its step out; a collective."""
    from torch import distributed as dist

    flag = torch.tensor([float(left_out)], device=device)
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())
