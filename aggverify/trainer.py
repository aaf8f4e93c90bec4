"""The rank's side: load the candidate, run one training step, read the effective weights.

Constructed by the world package in a template process; nothing here runs in the parent.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aggverify.case import Case
from aggverify.contract import logged, refusals
from aggverify.conventions import Bound, Site, convention, megatron_mpu
from aggverify.engines import Engine, Sizes, engine
from aggverify.layouts import Piece, owned_pieces
from aggverify.watching import Watch
from oracles import Step

if TYPE_CHECKING:
    from torch import Tensor


class ContractBreach(Exception):
    """The candidate returned something no trainer could take a gradient of."""


class Trainer:
    """Runs cases: shards, calls the candidate, scales, goes backward, reduces the gradient."""

    def __init__(self, setup: dict[str, Any]) -> None:
        megatron_mpu.install()
        self._module = _load(setup["target"])
        self._groups: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._rank, self._world = 0, 1

    def describe(self) -> dict[str, Any]:
        """The functions on offer, with parameter names, and the module's own declaration."""
        offers = []
        for name, value in vars(self._module).items():
            if inspect.isroutine(value) and not name.startswith("_"):
                offers.append({"name": name, "parameters": _parameters(value)})
        return {"offers": offers, "declared": _plain(getattr(self._module, "AGGVERIFY", None))}

    def start(self, rank: int, world_size: int) -> None:
        """Remember this rank's place in its world."""
        self._rank, self._world = rank, world_size

    def __call__(self, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Run one case; rank 0 returns the reduced gradient, every rank its local losses.

        A job may have cases to run before, want arguments watched, or the candidate misused.
        """
        for earlier in job.get("before", ()):
            self._run(Case.from_json(earlier), job)
        case = Case.from_json(job["case"])
        return self._run(case, job)

    def _run(self, case: Case, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        job_engine = engine(job["engine"])
        layout = case.layout
        dp_rank, cp_rank = divmod(self._rank, layout.cp_size)
        dp_group, cp_group = self._grid(layout.dp_size, layout.cp_size)
        megatron_mpu.place(dp_rank, layout.dp_size, cp_rank, layout.cp_size, dp_group, cp_group)
        site = Site(
            case,
            job["mode"],
            job["divisor"],
            job_engine.takes_counts,
            dp_rank,
            cp_rank,
            dp_group,
            cp_group,
        )
        how, module = convention(job["convention"]), self._module
        function = getattr(module, job["function"])

        def run(candidate: Callable[..., Any]) -> tuple[dict[str, Any], bytes]:
            return self._step(site, how.bind(candidate, module, site), job_engine)

        if job.get("misuse"):
            return refusals(run, function, how, site.mode)
        if not job.get("watch"):
            return run(function)
        watch = Watch()
        call = how.bind(watch.function(function), watch.module(module), site)
        reply, blob = self._step(site, call, job_engine)
        return reply | {"changed": watch.changes()}, blob

    def _step(self, site: Site, call: Bound, job_engine: Engine) -> tuple[dict[str, Any], bytes]:
        import torch

        case, layout, step = site.case, site.case.layout, site.case.step
        sizes = Sizes(layout.dp_size, layout.cp_size, layout.num_microbatches, step.num_rollouts)
        theta = torch.zeros(step.num_response_tokens, dtype=torch.float64, requires_grad=True)
        values = torch.tensor(case.losses, dtype=torch.float64)
        dtype = getattr(torch, case.dtype)
        losses, counts, logs = [], [], []
        for k, members in enumerate(layout.micro_batches[site.dp_rank]):
            out = call(k, _losses(site, members, values, theta).to(dtype))
            loss = _checked_loss(out.loss)
            losses.append(float(loss.detach().double()).hex())
            counts.append(_checked_count(out.count, step, members))
            logs.append(logged(out.log))
            job_engine.scale(loss, sizes).backward()  # type: ignore[no-untyped-call]
        gradient = theta.grad
        if gradient is None:
            raise ContractBreach("the returned loss does not depend on the losses it was given")
        job_engine.finish(gradient, sum(counts), sizes, None)
        blob = gradient.numpy().tobytes()
        reply = {"losses": losses, "counts": counts, "checksum": zlib.crc32(blob)}
        if any(log is not None for log in logs):
            reply["logs"] = logs
        return reply, blob if self._rank == 0 else b""

    def _grid(self, dp_size: int, cp_size: int) -> tuple[Any, Any]:
        """The (dp, cp) sub-groups of this rank, created once per factorisation.

        Every gloo group costs three threads that wake a hundred times a second, so the whole world
        and the rank alone are shared by all factorisations.
        """
        grid = [[d * cp_size + c for c in range(cp_size)] for d in range(dp_size)]
        return self._group([list(r) for r in zip(*grid, strict=True)]), self._group(grid)

    def _group(self, partition: list[list[int]]) -> Any:
        """This rank's group out of a partition of the world; a collective the first time."""
        import torch.distributed as dist

        if len(partition) == 1:
            return dist.group.WORLD
        key = tuple(map(tuple, partition))
        if key not in self._groups:
            self._groups[key] = dist.new_subgroups_by_enumeration(partition)[0]
        return self._groups[key]


def _losses(site: Site, members: tuple[int, ...], values: Tensor, theta: Tensor) -> Tensor:
    """The per-token losses ``value + theta[token]`` that the reducer sees on this rank, 1-D."""
    import torch

    step, layout = site.case.step, site.case.layout
    owned = _flat(step, members, owned_pieces(step, members, layout, site.cp_rank))
    index = torch.tensor(owned, dtype=torch.int64)
    local = values[index] + theta[index]
    if layout.cp_kind != "gathered" or layout.cp_size == 1:
        return local
    return _gather(site, members, local)


def _gather(site: Site, members: tuple[int, ...], local: Tensor) -> Tensor:
    """All CP ranks' losses in sample order; the backward hands each rank its own slice, once."""
    import torch
    import torch.distributed as dist

    step, layout = site.case.step, site.case.layout
    everything = _flat(step, members, [((0, step.samples[i].response_length),) for i in members])
    position = {token: p for p, token in enumerate(everything)}
    owned = [
        torch.tensor([position[t] for t in _flat(step, members, pieces)], dtype=torch.int64)
        for pieces in (owned_pieces(step, members, layout, c) for c in range(layout.cp_size))
    ]
    mine = owned[site.cp_rank]

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, piece: Tensor) -> Tensor:
            longest = max(len(index) for index in owned)
            padded = torch.zeros(longest, dtype=piece.dtype)
            padded[: len(piece)] = piece
            received = [torch.empty_like(padded) for _ in owned]
            dist.all_gather(received, padded, group=site.cp_group)
            out = torch.empty(len(everything), dtype=piece.dtype)
            for index, part in zip(owned, received, strict=True):
                out[index] = part[: len(index)]
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor) -> Tensor:
            return gradients[0][mine]

    out: Tensor = Gather.apply(local)  # type: ignore[no-untyped-call]
    return out


def _flat(step: Step, members: tuple[int, ...], pieces: Sequence[tuple[Piece, ...]]) -> list[int]:
    """Flat token indices of these pieces of these samples, in local order."""
    out: list[int] = []
    for i, parts in zip(members, pieces, strict=True):
        start = step.offsets[i]
        for a, b in parts:
            out.extend(range(start + a, start + b))
    return out


def _checked_loss(out: Any) -> Tensor:
    import torch

    if not isinstance(out, torch.Tensor):
        raise ContractBreach(f"the reducer must return a tensor, got {type(out).__name__} {out!r}")
    if out.numel() != 1:
        raise ContractBreach(f"the reducer must return a scalar, got shape {tuple(out.shape)}")
    if not out.is_floating_point():
        raise ContractBreach(f"the reducer must return a floating-point scalar, got {out.dtype}")
    if not out.requires_grad:
        raise ContractBreach(
            "the returned loss is cut off from the losses it was given (it has no gradient), so "
            "this rank's backward would fail"
        )
    return out.reshape(())


def _checked_count(count: Any, step: Step, members: tuple[int, ...]) -> int:
    """The micro-batch's token count: the reducer's own, or the trainer's from the full masks."""
    if count is None:
        return sum(step.samples[i].num_unmasked for i in members)
    number = float(count)
    if not number.is_integer() or number < 0:
        raise ContractBreach(f"the token count must be a non-negative integer, got {count!r}")
    return int(number)


def _load(target: dict[str, str]) -> ModuleType:
    """Import the candidate's module from a path or by dotted name."""
    if "module" in target:
        sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(target["module"])
    path = Path(target["path"])
    sys.path.insert(0, str(path.parent))
    name = f"_candidate_{path.stem}"  # never shadows a real module
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # a .py file, checked by the parent
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _parameters(function: Any) -> list[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []


def _plain(declared: Any) -> Any:
    """The declaration if it is plain data; otherwise its text, for the parent to refuse."""
    if declared is None or isinstance(declared, dict):
        return declared
    return repr(declared)
