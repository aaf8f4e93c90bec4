"""The rank's side: load the candidate, run one training step, read the effective weights.

Constructed by the world package in a template process; nothing here runs in the parent.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from aggverify.conventions import Bound, Site, convention, megatron_mpu
from aggverify.engines import Engine, Sizes, engine
from aggverify.engines.reduction import Reduction, Share
from aggverify.steps.case import Case
from aggverify.trainer.contract import logged, refusals
from aggverify.trainer.shards import Shard
from aggverify.trainer.watching import Watch
from aggverify.world import Place

if TYPE_CHECKING:
    from torch import Tensor


class ContractBreach(Exception):
    """The candidate returned something no trainer could take a gradient of."""


@dataclass(frozen=True, slots=True)
class Local:
    """A case on one rank up to the engine's collectives."""

    reply: dict[str, Any]
    share: Share


class UnderWay:
    """Cases whose gradients are being reduced."""

    def __init__(
        self, rank: int, job_engine: Engine, ran: Sequence[Local], *, waits: bool = True
    ) -> None:
        self._rank, self._ran = rank, ran
        self._reduction = Reduction(job_engine, [one.share for one in ran], waits=waits)

    @property
    def arrived(self) -> bool:
        """Whether :meth:`answers` would not wait."""
        return self._reduction.arrived

    def answers(self) -> list[tuple[dict[str, Any], bytes]]:
        """A reply for every case; rank 0 has the reduced gradient."""
        answers = []
        for one, gradient in zip(self._ran, self._reduction.gradients(), strict=True):
            blob = gradient.numpy().tobytes()
            reply = one.reply | {"checksum": zlib.crc32(blob)}
            answers.append((reply, blob if self._rank == 0 else b""))
        return answers


class Trainer:
    """Runs cases: shards, calls the candidate, scales, goes backward, reduces the gradient."""

    def __init__(self, setup: dict[str, Any]) -> None:
        megatron_mpu.install()
        self._module = _load(setup["target"])
        self._groups: dict[tuple[tuple[int, ...], ...], Any] = {}
        self._rank, self._world = 0, 1
        self._cold = True

    def describe(self) -> dict[str, Any]:
        """The functions on offer, with parameter names, and the module's own declaration."""
        offers = []
        for name, value in vars(self._module).items():
            if inspect.isroutine(value) and not name.startswith("_"):
                offers.append({"name": name} | _parameters(value))
        return {"offers": offers, "declared": _plain(getattr(self._module, "AGGVERIFY", None))}

    def start(self, place: Place) -> None:
        """Remember this rank's place in its world."""
        self._rank, self._world = place.rank, place.size

    def __call__(self, job: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
        """Run one case; rank 0 returns the reduced gradient, every rank its local losses.

        A job may have cases to run before, want arguments watched, or the candidate misused.
        """
        for earlier in job.get("before", ()):
            self._run(Case.unpacked(earlier), job, self._function(job))
        case, function = Case.unpacked(job["case"]), self._function(job)
        if job.get("misuse"):
            how = convention(job["convention"])
            return refusals(partial(self._run, case, job), function, how, job["mode"])
        return self._run(case, job, function)

    def together(self, jobs: Sequence[dict[str, Any]], between: Callable[[], None]) -> UnderWay:
        """Run several plain cases of one engine with one reduction, begun at the end."""
        ran = []
        for job in jobs:
            ran.append(self._local(Case.unpacked(job["case"]), job, self._function(job)))
            between()
        return UnderWay(self._rank, engine(jobs[0]["engine"]), ran, waits=False)

    def _function(self, job: dict[str, Any]) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(self._module, job["function"])
        return function

    def _run(
        self, case: Case, job: dict[str, Any], function: Callable[..., Any]
    ) -> tuple[dict[str, Any], bytes]:
        job_engine = engine(job["engine"])
        return UnderWay(self._rank, job_engine, [self._local(case, job, function)]).answers()[0]

    def _local(self, case: Case, job: dict[str, Any], function: Callable[..., Any]) -> Local:
        """Everything before the engine's collectives."""
        _make_room(case.step.num_response_tokens)
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
            job.get("counts_rejected", True),
            job.get("terms", 0),
            job.get("term"),
        )
        began, cold, self._cold = time.process_time(), self._cold, False
        how, module = convention(job["convention"]), self._module
        if job.get("watch"):
            watch = Watch()
            call = how.bind(watch.function(function), watch.module(module), site)
            done = self._step(site, call, job_engine)
            done.reply["changed"] = watch.changes()
        else:
            done = self._step(site, how.bind(function, module, site), job_engine)
        if cold:
            done.reply["first_seconds"] = time.process_time() - began
        return done

    def _step(self, site: Site, call: Bound, job_engine: Engine) -> Local:
        layout, step = site.case.layout, site.case.step
        sizes = Sizes(layout.dp_size, layout.cp_size, layout.num_microbatches, step.num_rollouts)
        shard = Shard(site)
        losses, counts, logs = [], [], []
        for k, members in enumerate(layout.micro_batches[site.dp_rank]):
            out = call(k, shard.losses(members))
            loss = _checked_loss(out.loss)
            losses.append(float(loss.item()).hex())
            counts.append(_checked_count(out.count, site, members))
            logs.append(logged(out.log))
            job_engine.scale(loss, sizes).backward()  # type: ignore[no-untyped-call]
        gradient = shard.gradient
        if gradient is None:
            raise ContractBreach("the returned loss does not depend on the losses it was given")
        reply: dict[str, Any] = {"losses": losses, "counts": counts}
        if any(log is not None for log in logs):
            reply["logs"] = logs
        return Local(reply, Share(gradient, sum(counts), sizes))

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


def _checked_count(count: Any, site: Site, members: tuple[int, ...]) -> int:
    """The micro-batch's token count: the reducer's own, or the trainer's from the full masks."""
    if count is None:
        return sum(site.counted(i) for i in members)
    number = float(count)
    if not number.is_integer() or number < 0:
        raise ContractBreach(f"the token count must be a non-negative integer, got {count!r}")
    return int(number)


LARGE = 1_000_000
VECTORS = 32
"""Float64 vectors over a step's tokens that a rank may need at a time, the candidate's included."""


def _make_room(tokens: int) -> None:
    """Raise this rank's memory limit for a step too large for the usual one."""
    import resource

    usual, hard = _usual_limit(resource.RLIMIT_AS)
    if tokens <= LARGE or usual == resource.RLIM_INFINITY:
        return
    wanted = usual + 8 * VECTORS * tokens
    wanted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))


@cache
def _usual_limit(which: int) -> tuple[int, int]:
    import resource

    return resource.getrlimit(which)


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


def _parameters(function: Any) -> dict[str, list[str]]:
    """Names of all parameters, and of those without a default."""
    try:
        found = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {"parameters": [], "required": []}
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    bare = [n for n, p in found.items() if p.default is p.empty and p.kind not in several]
    return {"parameters": list(found), "required": bare}


def _plain(declared: Any) -> Any:
    """The declaration if it is plain data; otherwise its text, for the parent to refuse."""
    if declared is None or isinstance(declared, dict):
        return declared
    return repr(declared)
