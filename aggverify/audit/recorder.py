"""In a trainer's process: reads the weight of every token off its own backward passes.

The gradient of what is backpropagated with respect to a token's loss is its local weight. A probe
is an identity with a hook on its gradient; after each backward pass what its hooks saw is appended
to the rank's file. A step ends with a torch optimizer's.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd import Variable
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from aggverify.audit.records import AMPLIFIED, MAGIC, SUFFIX, Array, Record
from aggverify.audit.reduction import Reduction
from aggverify.audit.step_selection import StepSelection

_CHUNK = 1 << 24
"""Logits looked at together."""
Read = tuple[Tensor, Tensor | None]
"""Weights, and which of them are known; None for all."""


@dataclass(slots=True)
class ProbeCall:
    """One call of a probe, until its gradient is there."""

    head: dict[str, Any]
    known: Mapping[str, Any]
    shape: tuple[int, ...]
    read: Callable[[Tensor], Read]
    recomputed: bool
    """Whether it was called within a backward pass: of an activation checkpoint's two forward
    passes only one has a gradient."""
    weights: Tensor | None = None
    sure: Tensor | None = None


@cache
def recorder(folder: str) -> Recorder:
    """Return the process's own."""
    return Recorder(Path(folder), StepSelection.read(os.environ.get("AGGVERIFY_PROBE_STEPS", "")))


@dataclass(slots=True)
class Recorder:
    """Appends to one file; counts optimizer steps and backward passes."""

    folder: Path
    chosen: StepSelection
    step: int = 0
    micro_batch: int = 0
    _calls: int = 0
    _stepped: bool = False
    _file: int | None = None
    _pending: list[ProbeCall] = field(default_factory=list)
    _done: list[ProbeCall] = field(default_factory=list)
    _scale: float | None = None
    """What the loss of this backward pass was multiplied by; None before any has been seen."""
    _reduction: Reduction | None = None

    def __post_init__(self) -> None:
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        _watch_scaler(self)
        _watch_deepspeed(self)
        if os.environ.get("AGGVERIFY_PROBE_ENGINE"):
            self._reduction = Reduction()

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def losses(
        self, losses: Any, mask: Any, name: str, step: int | None, known: Mapping[str, Any]
    ) -> Any:
        """Return the same losses, with a hook that records the gradient of each."""
        head = {"name": name, "quantity": "losses"}
        return self._probed(losses, head, step, {**known, "mask": mask}, lambda g: (g, None))

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def log_probs(
        self,
        log_probs: Any,
        advantages: Any,
        old: Any,
        mask: Any,
        step: int | None,
        known: Mapping[str, Any],
    ) -> Any:
        """Do so with log-probabilities; a token's loss is minus its ratio times its advantage."""
        head = {"name": "loss", "quantity": "log_probs"}
        if not isinstance(log_probs, Tensor):
            return log_probs
        read = partial(_per_advantage, log_probs.detach(), advantages, old)
        return self._probed(log_probs, head, step, {**known, "mask": mask}, read)

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    def logits(self, logits: Any, labels: Tensor, ignored: int, known: Mapping[str, Any]) -> Any:
        """Do so with logits (tokens, vocabulary), whose loss is cross entropy."""
        head = {"name": "loss", "quantity": "logits"}
        labels = labels.to(logits.device)
        read = partial(_per_label, logits.detach(), labels, ignored)
        return self._probed(logits, head, None, {**known, "mask": labels != ignored}, read)

    def _probed(
        self,
        values: Any,
        head: dict[str, Any],
        step: int | None,
        known: Mapping[str, Any],
        read: Callable[[Tensor], Read],
    ) -> Any:
        if not isinstance(values, Tensor) or not values.requires_grad:
            return values
        if _shapes_only():
            return values
        self._advance(step)
        if not self.chosen(self.step):
            return values
        shape = tuple(values.shape[:-1] if head["quantity"] == "logits" else values.shape)
        inside = torch._C._current_graph_task_id() != -1  # type: ignore[attr-defined]
        self._calls += 1
        head |= {"step": self.step, "call": self._calls}
        entry = ProbeCall(head, known, shape, read, inside)
        self._pending.append(entry)
        out = values.view_as(values)
        out.register_hook(partial(self._weighed, entry))
        if self._reduction is not None:
            self._reduction.watch(out)
        return out

    def _advance(self, step: int | None) -> None:
        if step is not None and step != self.step:
            self._record_unused()
            self.step, self.micro_batch = step, 0
        elif step is None and self._stepped:
            self.step, self.micro_batch = self.step + 1, 0
        self._stepped = False

    def _weighed(self, entry: ProbeCall, gradient: Tensor) -> None:
        """Take in a call's weights, added up where one backward pass goes through it again."""
        if not self._done:
            Variable._execution_engine.queue_callback(self._finish)
        if self._scale is None:
            self._scale = _scale_in_use()
        weights, sure = entry.read(gradient.detach())
        if any(entry is one for one in self._done) and entry.weights is not None:
            weights = weights + entry.weights * self._scale
        entry.weights, entry.sure = weights.clone() / self._scale, sure
        entry.head["dtype"] = str(gradient.dtype).removeprefix("torch.")
        self._done.append(entry)

    def _finish(self) -> None:
        """At the end of a backward pass."""
        done, self._done = self._done, []
        ended = {id(entry): entry for entry in done}
        for entry in ended.values():
            self._write(entry)
        self._pending = [entry for entry in self._pending if id(entry) not in ended]
        self.micro_batch, self._scale = self.micro_batch + 1, 1.0

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self._record_unused()
        if self._reduction is not None and self.chosen(self.step):
            for values in self._reduction.seen(optimizer):
                self._append(Record({"name": "reduction", "step": self.step}, values))

    def _after_step(self, *_: Any) -> None:
        self._stepped = True

    def _record_unused(self) -> None:
        """Record what nothing went backward through: it weighs nothing."""
        for entry in self._pending:
            if not entry.recomputed:
                entry.weights = torch.zeros(entry.shape)
                entry.head |= {"unused": True, "dtype": "float32"}
                self._write(entry)
        self._pending.clear()

    def scaled(self, by: float) -> None:
        """Note the factor of the loss from which the next backward pass begins."""
        if self._pending:
            self._scale = by

    def ended(self) -> None:
        """End the step, which a scaler has made or left out."""
        self._stepped = True

    def _write(self, entry: ProbeCall) -> None:
        assert entry.weights is not None
        exact = entry.head["dtype"] in ("float64", "int64")
        double = exact and entry.weights.dtype == torch.float64
        arrays = {"weights": _numbers(entry.weights, torch.float64 if double else torch.float32)}
        if entry.sure is not None:
            arrays["known"] = _numbers(entry.sure, torch.uint8)
        mask = entry.known.get("mask")
        if mask is not None:
            arrays["mask"] = _flat(mask, torch.bool).astype(np.uint8)
        for name in ("sample_ids", "group_ids", "rollout_ids", "positions", "lengths"):
            if (value := entry.known.get(name)) is not None:
                arrays[name] = _ids(value)
        head = entry.head | {"micro_batch": self.micro_batch}
        if (count := entry.known.get("count")) is not None:
            head["count"] = float(count)
        self._append(Record(head, arrays))

    def _append(self, record: Record) -> None:
        where = _place()
        if self._file is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"rank-{where['rank']:05d}-{os.getpid()}{SUFFIX}"
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.write(self._file, MAGIC)
        os.write(self._file, Record({**record.head, **where}, record.arrays).packed())


_PIPELINING = "torch.distributed.pipelining.stage"


def _shapes_only() -> bool:
    """Whether a pipeline calls its loss to learn the shapes of gradients, which it throws away."""
    if _PIPELINING not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_backward_metadata_inference":
            return True
        frame = frame.f_back
    return False


def _per_advantage(log_probs: Tensor, advantages: Any, old: Any, gradient: Tensor) -> Read:
    given = torch.as_tensor(advantages, device=gradient.device).detach().double()
    while given.dim() < gradient.dim():
        given = given.unsqueeze(-1)
    by = given.expand(gradient.shape)
    sure = by != 0
    if old is not None:
        ratio = (log_probs.double() - old.detach().double()).exp()
        by = by * ratio
        sure = sure & ((gradient != 0) | (ratio == 1))  # else it may be clipped
    return torch.where(sure, -gradient.double() / torch.where(sure, by, 1.0), 0.0), sure


def _per_label(logits: Tensor, labels: Tensor, ignored: int, gradient: Tensor) -> Read:
    """Project the gradient of a row, its weight times (softmax - one_hot(label)), on the latter."""
    rows, vocabulary = labels.reshape(-1), logits.shape[-1]
    found, sure = [], []
    step = max(1, _CHUNK // vocabulary)
    pieces = (part.reshape(-1, vocabulary).split(step) for part in (logits, gradient))
    for part, g, own in zip(*pieces, rows.split(step), strict=True):
        difference = part.double().softmax(-1)
        at = own.clamp(min=0).unsqueeze(-1)
        size = difference + torch.zeros_like(difference).scatter_(-1, at, 1.0)
        difference.scatter_add_(-1, at, -torch.ones_like(at, dtype=difference.dtype))
        squared = (difference**2).sum(-1)
        grown = (size * difference.abs()).sum(-1)
        found.append((g.double() * difference).sum(-1) / squared.clamp(min=1e-300))
        sure.append((grown <= AMPLIFIED * squared) | (own == ignored))
    return torch.cat(found).view(labels.shape), torch.cat(sure).view(labels.shape)


def _numbers(values: Tensor, dtype: torch.dtype) -> Array:
    found: Array = values.detach().to("cpu", dtype).contiguous().numpy()
    return found


def _flat(values: Any, dtype: torch.dtype) -> Array:
    """Return a tensor, or several one after the other."""
    if isinstance(values, Tensor):
        return _numbers(values, dtype)
    return np.concatenate([_numbers(torch.as_tensor(v), dtype).reshape(-1) for v in values])


def _ids(values: Any) -> Array:
    """Integers; of texts a hash of each."""
    if isinstance(values, Tensor):
        return _numbers(values, torch.int64)
    values = list(values)
    if values and isinstance(values[0], str):
        digests = (blake2b(v.encode(), digest_size=8).digest() for v in values)
        return np.array([int.from_bytes(d, "big") >> 1 for d in digests], dtype=np.int64)
    if values and isinstance(values[0], Tensor | Sequence | np.ndarray):
        return _flat(values, torch.int64)
    return np.array([int(v) for v in values], dtype=np.int64)


@cache
def _place() -> dict[str, int]:
    """Return the rank of this process, and of which launch it is."""
    if dist.is_available() and dist.is_initialized():
        found = {"rank": dist.get_rank(), "world": dist.get_world_size()}
    else:
        rank = os.environ.get("RANK", os.environ.get("SLURM_PROCID", "0"))
        world = os.environ.get("WORLD_SIZE", os.environ.get("SLURM_NTASKS", "1"))
        found = {"rank": int(rank), "world": int(world)}
    state = sys.modules.get("megatron.core.parallel_state")
    if state is not None and state.model_parallel_is_initialized():
        found |= {
            "tp_rank": state.get_tensor_model_parallel_rank(),
            "tp_size": state.get_tensor_model_parallel_world_size(),
            "pp_size": state.get_pipeline_model_parallel_world_size(),
            "cp_rank": state.get_context_parallel_rank(),
            "cp_size": state.get_context_parallel_world_size(),
        }
    return found


def _scale_in_use() -> float:
    """Return the scale of a GradScaler whose method was looked up before it was watched.

    ``scaler.scale(loss())`` looks it up, then calls the first probe, which makes the recorder.
    """
    kind = torch.amp.GradScaler
    scalers = [cast(Any, o) for o in gc.get_objects() if issubclass(type(o), kind)]
    scales = {s.get_scale() for s in scalers if s.is_enabled() and s._scale is not None}
    return scales.pop() if len(scales) == 1 else 1.0


def _watch_scaler(mine: Recorder) -> None:
    """Take a GradScaler's scale out, and end a step that it leaves out."""
    scaler = torch.amp.GradScaler
    scale = scaler.scale

    def scaled(self: Any, outputs: Any) -> Any:
        out = scale(self, outputs)
        mine.scaled(self.get_scale() if self.is_enabled() else 1.0)
        return out

    scaler.scale = scaled  # type: ignore[method-assign]
    scaler.update = _noting_end(mine, scaler.update)  # type: ignore[method-assign]


def _watch_deepspeed(mine: Recorder) -> None:
    """Do the same for DeepSpeed's own fp16, which has its own scalers."""
    module = sys.modules.get("deepspeed.runtime.fp16.loss_scaler")
    if module is None:
        return
    kinds = [k for k in vars(module).values() if isinstance(k, type) and hasattr(k, "update_scale")]
    for kind in kinds:
        own = vars(kind)
        # One scales what another then goes backward from; older releases have no such method.
        name = "scale_loss" if hasattr(kind, "scale_loss") else "backward"
        if name in own:
            setattr(kind, name, _noting_scale(mine, own[name]))
        if "update_scale" in own:
            kind.update_scale = _noting_end(mine, own["update_scale"])


def _noting_scale(mine: Recorder, scale: Callable[..., Any]) -> Callable[..., Any]:
    def scaled(self: Any, loss: Any, *args: Any, **how: Any) -> Any:
        mine.scaled(float(self.loss_scale))
        return scale(self, loss, *args, **how)

    return scaled


def _noting_end(mine: Recorder, update: Callable[..., Any]) -> Callable[..., Any]:
    def updated(self: Any, *args: Any, **how: Any) -> None:
        update(self, *args, **how)
        mine.ended()

    return updated
