"""Reducers as kernels have them: lean backwards, tiles, compaction, products and compiled code."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BYTE = (1, 2, 4, 8, 16, 32, 64, 128)
_BLOCK = 4096
_SEGMENT = 8192
_SAMPLES_AT_ONCE = 8
_WORTH_COMPILING = 64


def _at_least_single(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _double_divisors(counts: list[int], units: int, like: Tensor) -> Tensor:
    """Of each sample, its unit's tokens times the units of the step."""
    products = [float(max(count, 1) * max(units, 1)) for count in counts]
    return torch.tensor(products, dtype=torch.float64, device=like.device)


class _BitPackedSegments(Function):
    """Sums of segments over their divisors, with an eighth of a byte a token kept for backward."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, mask: Tensor, sizes: Tensor, divisors: Tensor) -> Tensor:
        wide = _at_least_single(losses.dtype)
        values = losses.to(wide, copy=True)
        ctx.whole = bool(mask.all())
        if ctx.whole:
            bits = mask.new_zeros(0, dtype=torch.uint8)
        else:
            values.masked_fill_(~mask, 0.0)
            octets = pad(mask.to(torch.uint8), (0, -len(mask) % 8)).view(-1, 8)
            bits = (octets * octets.new_tensor(_BYTE)).sum(dim=1, dtype=torch.uint8)
        ctx.save_for_backward(bits, sizes, divisors)
        ctx.length, ctx.dtype = len(losses), losses.dtype
        totals = torch.segment_reduce(values, "sum", lengths=sizes, axis=0)
        return (totals / divisors.to(wide)).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None, None]:
        bits, sizes, divisors = ctx.saved_tensors
        gradient = (grad_output / divisors.to(grad_output)).repeat_interleave(sizes)
        if not ctx.whole:
            octets = bits[:, None].bitwise_and(bits.new_tensor(_BYTE)).ne(0)
            gradient.masked_fill_(~octets.view(-1)[: ctx.length], 0.0)
        return gradient.to(ctx.dtype), None, None, None


def mask_kept_as_bits(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Averages over rollouts in a function that packs eight mask entries into one byte."""
    if not losses.numel():
        return losses.to(_at_least_single(losses.dtype)).sum()
    sizes = torch.tensor(lengths(batch), device=losses.device)
    divisors = _double_divisors(batch.rollout_tokens, batch.num_rollouts, losses)
    total: Tensor = _BitPackedSegments.apply(losses, own_mask(batch), sizes, divisors)
    return total


def tiles_that_end_with_their_sample(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Fills every sample up to whole tiles and contracts the table of tiles with their shares."""
    pieces = rows(losses, batch)
    longest = max(map(len, pieces), default=0)
    if not longest:
        return kept(losses, batch).sum()
    width = 16 if longest <= 256 else 256
    tiles = torch.tensor([-(-len(piece) // width) for piece in pieces], device=losses.device)
    table = torch.cat([pad(piece, (0, -len(piece) % width)) for piece in pieces]).view(-1, width)
    shares = 1 / _double_divisors(batch.group_tokens, batch.num_groups, losses)
    # TF32 and autocast leave doubles as they are
    with torch.autocast(losses.device.type, enabled=False):
        total = torch.einsum("kt,k->", table.double(), shares.repeat_interleave(tiles))
    return total.to(table.dtype)


class _ExactSum(Function):
    """The sum of blocks, rounded once; a sum's gradient needs nothing but the shape."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        ctx.shape = values.shape
        blocks = [float(block.sum()) for block in values.split(_BLOCK)]
        if not all(map(math.isfinite, blocks)):
            return values.sum()  # whatever is wrong is to be seen
        try:
            return values.new_tensor(math.fsum(blocks))
        except OverflowError:
            return values.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.expand(ctx.shape)


def _summed_in_double(values: Tensor) -> Tensor:
    return values.sum(dtype=torch.float64).to(_at_least_single(values.dtype))


def as_exact_as_its_format(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Adds up in doubles what is narrower, and doubles themselves by an exact sum of blocks."""
    adders: dict[torch.dtype, Callable[[Tensor], Tensor]] = {torch.float64: _ExactSum.apply}
    adder = adders.get(losses.dtype, _summed_in_double)
    mask = own_mask(batch)
    if losses.is_cuda:  # one launch, and no number fetched from the device
        adder = _summed_in_double
    return adder(torch.where(mask, losses, 0.0))


def both_terms_by_an_incidence_matrix(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Multiplies losses and KL, as two columns, with the sparse matrix of tokens in samples."""
    mask = own_mask(batch)
    columns = torch.stack([kept(losses, batch), kept(kl, batch)], dim=1)
    places = mask.nonzero()[:, 0]
    if len(places):
        samples = torch.arange(len(batch.local_masks), device=losses.device)
        owners = samples.repeat_interleave(torch.tensor(lengths(batch), device=losses.device))
        incidence = torch.sparse_coo_tensor(
            torch.stack([owners[places], places]),
            columns.new_ones(len(places)),
            (len(samples), len(mask)),
            check_invariants=False,
            is_coalesced=True,
        )
        with torch.autocast(losses.device.type, enabled=False):
            totals = torch.sparse.mm(incidence, columns)
        divisors = _double_divisors(batch.rollout_tokens, batch.num_rollouts, losses).to(totals)
        policy, penalty = (totals / divisors[:, None]).sum(dim=0).unbind()
    else:
        policy, penalty = columns.sum(dim=0).unbind()
    loss = policy + penalty
    log = {"loss": loss.detach(), "policy": policy.detach(), "kl": penalty.detach()}
    return loss, log


def _masked_quotient(values: Tensor, mask: Tensor, divisor: Tensor) -> Tensor:
    wide = values.to(divisor.dtype)
    return torch.where(mask, wide, 0.0).sum() / divisor


@cache
def _compiled_quotient() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return torch.compile(_masked_quotient, backend="eager", dynamic=True)


def compiled_where_it_pays(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Compiles the masked quotient, with the divisor as a tensor, for all but small pieces."""
    divisor = torch.tensor(
        (1.0 if batch.divisor is None else float(batch.divisor)) * max(batch.num_rollouts, 1),
        dtype=torch.float64,
        device=losses.device,
    ).to(_at_least_single(losses.dtype))
    quotient = _masked_quotient
    if losses.is_cuda or len(losses) >= _WORTH_COMPILING:
        quotient = _compiled_quotient()
    return quotient(losses, own_mask(batch), divisor)


def _checkpointed_sum(dtype: torch.dtype, values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values.to(dtype), 0.0).sum()


def segments_made_again_in_backward(
    losses: Tensor, batch: MicroBatch
) -> tuple[Tensor, dict[str, list[Tensor | int]]]:
    """Checkpoints all segments but where no graph is built, and logs for a mean over the calls."""
    segment = partial(_checkpointed_sum, _at_least_single(losses.dtype))
    recomputed = partial(
        checkpoint, segment, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    )

    def partials() -> Iterator[Tensor]:
        graph = torch.is_grad_enabled() and losses.requires_grad
        once = not graph or len(losses) <= _SEGMENT
        for values, mask in zip(
            losses.split(_SEGMENT), own_mask(batch).split(_SEGMENT), strict=True
        ):
            yield segment(values, mask) if once else recomputed(values, mask)

    loss = torch.stack(list(partials())).sum() / max(batch.num_tokens, 1)
    calls = batch.num_microbatches * batch.dp_size * (1 if batch.gathered else batch.cp_size)
    return loss, {"loss": [loss.detach() * calls, 1]}


def streamed_into_a_dense_buffer(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Moves trained tokens together, to places from a prefix sum; others share one unread slot."""
    mask = own_mask(batch)
    wide = losses.to(_at_least_single(losses.dtype))
    prefix = mask.cumsum(0)
    count = int(prefix[-1]) if len(prefix) else 0
    if count == len(mask):
        dense = wide
    elif not torch.is_grad_enabled():
        dense = wide.masked_select(mask)
    else:
        places = torch.where(mask, prefix - 1, count)
        dense = wide.new_zeros(count + 1).scatter_(0, places, wide)[:count]
    return dense.sum() / max(batch.num_rollouts, 1)


def _quotients(values: Tensor, divisors: Tensor) -> Tensor:
    return (values / divisors).sum()


class _GradientsPrepared(Function):
    """A value and its gradient made in one pass; backward only multiplies by what it is given."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, sizes: list[int], divisors: Tensor) -> Tensor:
        both = torch.func.grad_and_value(_quotients)
        total, gradients = values.new_zeros(()), []
        start = 0
        for first in range(0, len(sizes), _SAMPLES_AT_ONCE):
            here = slice(first, first + _SAMPLES_AT_ONCE)
            repeats = torch.tensor(sizes[here], device=values.device)
            each = divisors[here].repeat_interleave(repeats).to(values)
            piece = values[start : start + len(each)]
            start += len(each)
            if ctx.needs_input_grad[0]:
                gradient, value = both(piece, each)
                gradients.append(gradient)
            else:
                value = _quotients(piece, each)
            total += value
        ctx.save_for_backward(*gradients)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        return torch.cat(ctx.saved_tensors) * grad_output, None, None


def gradient_ready_before_backward(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prepares value and gradient for a few samples at a time; a single sample goes without."""
    values = kept(losses, batch)
    if len(batch.local_masks) <= 1:
        groups = max(batch.num_groups, 1)
        return over(values.sum().view(1), [n * groups for n in batch.group_tokens[:1]]).sum()
    divisors = _double_divisors(batch.group_tokens, batch.num_groups, losses)
    total: Tensor = _GradientsPrepared.apply(values, lengths(batch), divisors)
    return total
