"""Reducers that remember: plans, windows, switches, closures, recomputed blocks, packed masks."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, lru_cache, partial
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from aggverify.conventions import MicroBatch

_log = logging.getLogger(__name__)


def _trained(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Which of the local losses count."""
    none = torch.zeros(0, dtype=torch.bool, device=losses.device)
    return torch.cat([none, *(mask.to(none) for mask in batch.local_masks)])


def _sizes(batch: MicroBatch) -> list[int]:
    return [len(mask) for mask in batch.local_masks]


def _shown(losses: Tensor) -> torch.dtype:
    """The dtype of a result: that of the losses, but not 16 bits."""
    return torch.float32 if losses.element_size() < 4 else losses.dtype


def _blank(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Losses in double precision, zeros where they do not count."""
    return torch.where(_trained(losses, batch), losses.double(), 0.0)


def _floors(counts: Sequence[int], like: Tensor) -> Tensor:
    """Counts to divide by, in double precision."""
    floors = [float(max(count, 1)) for count in counts]
    return torch.tensor(floors, dtype=torch.float64, device=like.device)


class _Plan:
    """How the samples of one arrangement are added up; it lives as long as a graph holds it."""

    alive: ClassVar[WeakValueDictionary[tuple[object, ...], _Plan]] = WeakValueDictionary()

    def __init__(self, sizes: tuple[int, ...], counts: tuple[int, ...], like: Tensor) -> None:
        self.sizes = sizes
        self.counts = _floors(counts, like)
        self.repeats = torch.tensor(sizes, dtype=torch.int64, device=like.device)

    @classmethod
    def of(cls, batch: MicroBatch, like: Tensor) -> _Plan:
        sizes, counts = tuple(_sizes(batch)), tuple(batch.group_tokens)
        key = (sizes, counts, str(like.device))
        plan = cls.alive.get(key)
        if plan is None:
            with torch.inference_mode(False):
                plan = cls.alive[key] = cls(sizes, counts, like)
        return plan


class _SumByPlan(torch.autograd.Function):
    """The samples' sums over their counts; only the plan is held for backward."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, plan: _Plan, units: int) -> Tensor:
        ctx.plan, ctx.units = plan, units
        sums = torch.stack([row.sum() for row in values.split(plan.sizes)])
        return (sums / plan.counts).sum() / units

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        each = gradients[0].double() / ctx.units / ctx.plan.counts
        return each.repeat_interleave(ctx.plan.repeats), None, None


def plans_alive_with_their_graphs(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean by plans that micro-batches share while any of their graphs is alive."""
    values = _blank(losses, batch)
    units = max(batch.num_groups, 1)
    if not len(values):
        return values.sum().to(_shown(losses))
    if len(batch.local_masks) == 1:  # not worth a plan
        return (values.sum() / max(batch.group_tokens[0], 1) / units).to(_shown(losses))
    total: Tensor = _SumByPlan.apply(values, _Plan.of(batch, losses), units)
    return total.to(_shown(losses))


_RECOMPUTED, _AT_MOST = 48, 6


def _block_of_means(losses: Tensor, trained: Tensor, counts: Tensor) -> Tensor:
    return (torch.where(trained, losses.double(), 0.0) / counts).sum()


def blocks_recomputed_in_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean in a few blocks of tokens, each of which is computed again for its gradient."""
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64, device=losses.device)
    counts = _floors(batch.rollout_tokens, losses).repeat_interleave(sizes)
    trained = _trained(losses, batch)
    step = max(_RECOMPUTED, -(-len(losses) // _AT_MOST))
    block: Callable[..., Tensor] = _block_of_means
    if torch.is_grad_enabled() and losses.requires_grad and len(losses) > _RECOMPUTED:
        block = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False)
    pieces = zip(losses.split(step), trained.split(step), counts.split(step), strict=True)
    parts = [block(*piece) for piece in pieces]
    total = torch.stack(parts).sum() if len(parts) > 1 else parts[0]
    return (total / max(batch.num_rollouts, 1)).to(_shown(losses))


def _ledger(total: Tensor) -> Generator[Tensor, Tensor, None]:
    """Is sent amounts and answers with the sum so far."""
    while True:
        amount = yield total
        total = total + amount


def amounts_sent_to_a_ledger(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Tensor:
    """Sequence sum of losses and a KL term, sent sample by sample to a generator that adds up."""
    masks = [mask.to(losses.device).bool() for mask in batch.local_masks]
    with ExitStack() as stack:
        stack.enter_context(torch.autocast(losses.device.type, enabled=False))
        start = losses[:0].double().sum() + kl[:0].double().sum()
        ledger = stack.enter_context(closing(_ledger(start)))
        total = next(ledger)
        for term in (losses, kl):
            for row, mask in zip(term.split(_sizes(batch)) if masks else (), masks, strict=True):
                if bool(mask.all()):
                    total = ledger.send(row.double().sum())
                elif bool(mask.any()):
                    total = ledger.send(row[mask].double().sum())
    return (total / max(batch.num_rollouts, 1)).to(_shown(losses))


@dataclass(frozen=True)
class _Switches:
    block: int
    tree: bool


@cache
def _switches() -> _Switches:
    """The environment's word on how to add up, asked for once a process."""
    block = os.environ.get("LOSS_SUM_BLOCK", "")
    return _Switches(
        block=max(int(block), 16) if block.isascii() and block.isdigit() else 64,
        tree=os.environ.get("LOSS_SUM_TREE", "1").lower() not in ("0", "off", "false"),
    )


@lru_cache(maxsize=256)
def _cuts(count: int, block: int) -> tuple[int, ...]:
    """The sizes of at most 512 blocks, of which the last may be shorter."""
    block = max(block, -(-count // 512))
    whole, rest = divmod(count, block)
    return (block,) * whole + ((rest,) if rest else ())


def added_up_as_the_environment_says(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Token sum, in one go or as a tree over blocks, by switches that are read once."""
    switches = _switches()
    values = _blank(losses, batch)
    if not switches.tree or len(values) <= switches.block:
        total = values.sum()
    else:
        cuts = list(_cuts(len(values), switches.block))
        level = torch.stack([block.sum() for block in values.split(cuts)])
        while len(level) > 1:
            if len(level) % 2:
                level = torch.nn.functional.pad(level, (0, 1))
            level = level[0::2] + level[1::2]
        total = level[0]
    loss = total.to(_shown(losses))
    return loss, {"loss": loss.detach(), "samples": len(batch.local_masks)}


class _WindowMemory:
    """The scales of the window of micro-batches that was asked about last."""

    def __init__(self) -> None:
        self.windows = 0
        self._last: tuple[tuple[tuple[int, ...], int], tuple[float, ...]] = (((), 0), ())

    def __call__(self, batch: MicroBatch) -> float:
        window = (tuple(batch.window_tokens), batch.num_tokens)
        known, scales = self._last
        if known != window:
            step = max(batch.num_tokens, 1)
            # a micro-batch's mean times its share of the step, in one exact fraction
            scales = tuple(float(Fraction(n, step) / n) if n else 0.0 for n in window[0])
            self._last = (window, scales)
            self.windows += 1
            _log.debug("window %d: %d micro-batches", self.windows, len(scales))
        if any(scales[batch.index : batch.index + 1]):
            return scales[batch.index]
        return 1 / max(batch.num_tokens, 1)


_scale_in_window = _WindowMemory()


def scales_remembered_for_a_window(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, Any]]:
    """Token mean by scales that are laid out for all micro-batches when their window is new."""
    scale = _scale_in_window(batch)
    trained = _trained(losses, batch)
    if bool(trained.any()):
        loss = (losses[trained].double().sum() * scale).to(_shown(losses))
    else:
        loss = losses[:0].to(_shown(losses)).sum()
    return loss, {"loss": loss.detach(), "micro-batches": batch.num_microbatches}


_Division = Callable[[Tensor], Tensor]


def _last_made(make: Callable[[float, int], _Division]) -> Callable[[float, int], _Division]:
    """Gives what was made last again, if it would be made from the same."""
    last: tuple[tuple[float, int], _Division] | None = None

    def made(divisor: float, rollouts: int) -> _Division:
        nonlocal last
        if last is None or last[0] != (divisor, rollouts):
            last = ((divisor, rollouts), make(divisor, rollouts))
        return last[1]

    return made


@_last_made
def _division(divisor: float, rollouts: int) -> _Division:
    """Division by both; a power of two has an exact reciprocal, and is multiplied by it."""
    product = float(divisor) * max(rollouts, 1)
    if math.frexp(product)[0] == 0.5:
        return partial(torch.mul, other=1 / product)
    return lambda total: total / product


def divided_by_the_last_closure(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Constant divisor, applied by a closure that is made again when divisor or count change."""
    assert batch.divisor is not None
    divide = _division(batch.divisor, batch.num_rollouts)
    trained = _trained(losses, batch)
    wide = losses.to(_shown(losses))
    if not bool(trained.all()):
        wide = wide.masked_fill(~trained, 0.0)
    if len(wide) <= 1:
        return divide(wide.sum())
    half = len(wide) // 2
    return divide(wide[:half].sum() + wide[half:].sum())


class _WatchedAtFirst:
    """Answers with the quick form; in the first calls the plain one is held against it, and
    differences are logged."""

    def __init__(self, quick: Callable[..., Tensor], plain: Callable[..., Tensor]) -> None:
        self.quick, self.plain = quick, plain
        self.calls = self.differences = 0

    def __call__(self, losses: Tensor, batch: MicroBatch) -> Tensor:
        answer = self.quick(losses, batch)
        if self.calls < 5:
            self.calls += 1
            with torch.no_grad():
                plain = self.plain(losses.detach(), batch)
            alike = torch.allclose(answer.detach(), plain, rtol=1e-6, atol=1e-6, equal_nan=True)
            self.differences += not alike
            _log.debug("%d of %d calls differ from the old loop", self.differences, self.calls)
        return answer


def _by_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    """One slot for each prompt that is met here, divided by the prompt's count."""
    slots = {group: slot for slot, group in enumerate(dict.fromkeys(batch.group_ids))}
    counts = dict(zip(batch.group_ids, batch.group_tokens, strict=True))
    device = losses.device
    slot = torch.tensor([slots[group] for group in batch.group_ids], dtype=torch.int64)
    sizes = torch.tensor(_sizes(batch), dtype=torch.int64)
    owners = slot.repeat_interleave(sizes).to(device)
    values = _blank(losses, batch)
    sums = values.new_zeros(len(slots)).index_add(0, owners, values)
    return (sums / _floors([counts[group] for group in slots], losses)).sum()


def _by_sample(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = losses.new_zeros((), dtype=torch.float64)
    rows = _blank(losses, batch).split(_sizes(batch)) if batch.local_masks else ()
    for row, count in zip(rows, batch.group_tokens, strict=True):
        total += row.sum() / max(count, 1)
    return total


_prompts = _WatchedAtFirst(_by_prompt, _by_sample)


def quick_form_watched_at_first(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean with a slot for each prompt, compared with a plain loop in the first calls."""
    if len(batch.local_masks) == 0 or not len(losses):
        return losses.to(_shown(losses)).sum()
    total = _prompts(losses, batch)
    return (total / max(batch.num_groups, 1)).to(_shown(losses))


def _packed(saved: Tensor) -> Tensor | tuple[Tensor, int]:
    """Eight flags in a byte; everything else is kept as it is."""
    if saved.dtype != torch.bool or saved.dim() != 1:
        return saved
    flags = torch.nn.functional.pad(saved.to(torch.uint8), (0, -len(saved) % 8))
    bits = 2 ** torch.arange(8, dtype=torch.uint8, device=saved.device)
    return (flags.view(-1, 8) * bits).sum(dim=1, dtype=torch.uint8), len(saved)


def _unpacked(kept: Tensor | tuple[Tensor, int]) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    packed, count = kept
    bits = 2 ** torch.arange(8, dtype=torch.uint8, device=packed.device)
    return ((packed[:, None] & bits) != 0).flatten()[:count]


def masks_saved_as_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean whose graph keeps the mask as bits, where it is long enough to matter."""
    saving = torch.is_grad_enabled() and len(losses) > 24
    trained = _trained(losses, batch)
    with saved_tensors_hooks(_packed, _unpacked) if saving else nullcontext():
        values = torch.where(trained, losses.to(_shown(losses)), 0.0)
    means = [values[:0].sum(dtype=torch.float64)]
    begin = 0
    for size, count in zip(_sizes(batch), batch.rollout_tokens, strict=True):
        if size:
            row = values[begin : begin + size]
            means.append(row.sum(dtype=torch.float64) / max(count, 1))
        begin += size
    total = torch.stack(means).sum() / max(batch.num_rollouts, 1)
    return total.to(_shown(losses))
