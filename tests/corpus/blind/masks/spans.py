"""Reducers about masks and divisors: sparse cells, packed bits, spans, jagged rows, shares."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from aggverify.conventions import MicroBatch
from tests.corpus.blind.parts import kept, lengths, over, own_mask, rows

BLOCK = 8
FEW = 3
TRAINED = re.compile(b"\x01+")


def _wide(values: Tensor) -> Tensor:
    """16-bit losses in float32, others as they are."""
    return values.float() if values.element_size() < 4 else values


def trained_cells_of_a_sparse_grid(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean over a sparse grid, a line for each sample and a cell for each trained token."""
    mask, values = own_mask(batch), _wide(losses)
    cells = mask.nonzero()[:, 0]
    if not len(cells):
        return values[:0].sum()
    if len(cells) == len(mask):
        lines = torch.stack([piece.sum() for piece in values.split(lengths(batch))])
    else:
        sizes = torch.tensor(lengths(batch))
        owners = torch.arange(len(sizes)).repeat_interleave(sizes)
        columns = torch.arange(len(mask)) - (sizes.cumsum(0) - sizes)[owners]
        grid = torch.sparse_coo_tensor(
            torch.stack([owners, columns])[:, cells],
            values[cells].double(),
            (len(sizes), int(sizes.max())),
            check_invariants=True,
        )
        lines = torch.sparse.sum(grid, dim=1).to_dense().to(values.dtype)
    return over(lines, batch.rollout_tokens).sum() / batch.num_rollouts


def _paired(sizes: list[int]) -> Iterator[tuple[int, int | None]]:
    """The longest with the shortest, and so on; an odd one in the middle stays alone."""
    order = sorted(range(len(sizes)), key=lambda i: (-sizes[i], i))
    while len(order) > 1:
        yield order.pop(0), order.pop()
    if order:
        yield order.pop(), None


def two_responses_to_a_row(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean over rows that hold a long response in front and a short one at their end."""
    values, sizes, groups = kept(losses, batch), lengths(batch), batch.group_tokens
    if len(sizes) == 1:
        return values.sum() / max(groups[0], 1) / batch.num_groups
    pieces, pairs = values.split(sizes), list(_paired(sizes))
    fronts = [sizes[front] for front, _ in pairs]
    backs = [0 if back is None else sizes[back] for _, back in pairs]
    longest = max(map(sum, zip(fronts, backs, strict=True)))
    width = -(-longest // BLOCK) * BLOCK
    table, counts = [], []
    for front, back in pairs:
        row = pad(pieces[front], (0, width - sizes[front]))
        if back is not None:
            row = row + pad(pieces[back], (width - sizes[back], 0))
        table.append(row)
        counts.append((groups[front], 1 if back is None else groups[back]))
    grid, position = torch.stack(table), torch.arange(width)
    in_front = position < torch.tensor(fronts)[:, None]
    behind = position >= width - torch.tensor(backs)[:, None]
    halves = [torch.where(inside, grid, 0.0).sum(dim=1) for inside in (in_front, behind)]
    divisors = [front for front, _ in counts] + [back for _, back in counts]
    return over(torch.cat(halves), divisors).sum() / batch.num_groups


@dataclass(frozen=True)
class _Bits:
    """A mask as bytes of eight tokens each, the first token lowest; what is behind it is 0."""

    words: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> _Bits:
        tokens = pad(mask.to(torch.uint8), (0, -len(mask) % 8)).view(-1, 8)
        words = torch.zeros(len(tokens), dtype=torch.uint8)
        for place in range(8):
            words |= tokens[:, place] << place
        return cls(words)

    def mixed(self) -> Tensor:
        return ((self.words != 0) & (self.words != 255)).nonzero()[:, 0]

    def tokens(self, places: Tensor) -> Tensor:
        return ((self.words[places, None] >> torch.arange(8, dtype=torch.uint8)) & 1).bool()


def words_of_eight_tokens(losses: Tensor, batch: MicroBatch) -> tuple[Tensor, dict[str, Any]]:
    """Token mean by a bit-packed mask: full words whole, mixed ones bit by bit; logs a pair."""
    bits = _Bits.of(own_mask(batch))
    blocks = pad(_wide(losses), (0, -len(losses) % 8)).view(-1, 8)
    mixed = bits.mixed()
    whole = bits.words == 255
    total = blocks.sum() if whole.all() else blocks[whole].sum()
    if len(mixed):
        total = total + torch.where(bits.tokens(mixed), blocks[mixed], 0.0).sum()
    tokens = max(batch.num_tokens, 1)
    # One micro-batch tells the count; gathered copies of it are merged as one.
    told = batch.index == 0 and batch.dp_rank == 0 and (batch.gathered or batch.cp_rank == 0)
    return total / tokens, {"loss": [total.detach(), tokens if told else 0]}


def spans_found_in_bytes(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sequence sum over spans of trained tokens: as slices if few, else as one list of places."""
    values = _wide(losses)
    spans: list[tuple[int, int]] = []
    begin = 0
    for mask in batch.local_masks:
        found = TRAINED.finditer(bytes(mask.tolist()))
        spans += [(begin + span.start(), begin + span.end()) for span in found]
        begin += len(mask)
    if len(spans) <= FEW:
        total = values[:0].sum()
        for start, end in spans:
            total = total + values[start:end].sum()
        return total / batch.num_rollouts
    starts, ends = torch.tensor(spans).unbind(dim=1)
    sizes = ends - starts
    before = sizes.cumsum(0) - sizes
    places = torch.arange(int(sizes.sum())) + (starts - before).repeat_interleave(sizes)
    return values.index_select(0, places).sum() / batch.num_rollouts


def _leaves_early(reducer: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Answers 0, with its gradient path, where no token is trained."""

    @wraps(reducer)
    def early(losses: Tensor, batch: MicroBatch) -> Tensor:
        if not any(bool(mask.any()) for mask in batch.local_masks):
            return _wide(losses).narrow(0, 0, 0).sum()
        return reducer(losses, batch)

    return early


@_leaves_early
def mantissa_and_exponent_of_the_divisor(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Constant divisor as an exact fraction: powers of two are shifted, others divided first."""
    assert batch.divisor is not None
    mantissa, exponent = math.frexp(Fraction(batch.divisor) * batch.num_rollouts)
    values = _wide(losses)
    total = torch.masked.sum(values, dim=0, mask=own_mask(batch), dtype=values.dtype)
    if mantissa == 0.5:
        return total * 2.0 ** (1 - exponent)
    return total / mantissa * 2.0**-exponent


def both_terms_selected_at_once(
    losses: Tensor, batch: MicroBatch, kl: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Token sum of losses and penalty, selected from two rows by one mask, and logged apart."""
    mask = own_mask(batch)
    terms = torch.stack([_wide(losses), _wide(kl)])
    if mask.all():
        policy, penalty = terms.sum(dim=1)
    elif mask.any():
        policy, penalty = terms.masked_select(mask).view(2, -1).sum(dim=1)
    else:
        policy, penalty = terms[:, :0].sum(dim=1)
    loss = policy + penalty
    return loss, {"loss": loss.detach(), "penalty": penalty.detach()}


def samples_of_one_exact_share(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Prompt mean: samples whose tokens weigh the same exact fraction are added up first."""
    shares: dict[Fraction, list[Tensor]] = {}
    pieces = zip(rows(losses, batch), batch.local_masks, batch.group_tokens, strict=True)
    for piece, mask, tokens in pieces:
        if mask.any():
            share = Fraction(1, max(tokens, 1) * batch.num_groups)
            shares.setdefault(share, []).append(piece.sum())
    if not shares:
        return kept(losses, batch).sum()
    # As a float, since a step's counts multiplied may be more than 64 bits hold.
    added = [torch.stack(shares[by]).sum() / float(by.denominator) for by in sorted(shares)]
    return torch.stack(added).sum()


@dataclass(frozen=True)
class _Jagged:
    """Trained tokens only, one sample after the other, and where each begins and ends."""

    values: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, losses: Tensor, batch: MicroBatch) -> _Jagged:
        mask = own_mask(batch)
        here = torch.tensor([0, *(int(row.sum()) for row in batch.local_masks)])
        values = losses if mask.all() else losses.masked_select(mask)
        return cls(values.double(), here.cumsum(0))

    def sums(self) -> Tensor:
        return torch.segment_reduce(self.values, "sum", offsets=self.offsets, initial=0.0)


def jagged_sums_between_offsets(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Sample mean over jagged rows of trained tokens, reduced between their offsets in float64."""
    jagged = _Jagged.of(losses, batch)
    if not len(jagged.values):
        return _wide(losses)[:0].sum()
    divisors = torch.tensor(batch.rollout_tokens).clamp(min=1)
    total = (jagged.sums() / divisors).sum() / batch.num_rollouts
    return total if losses.dtype == torch.float64 else total.float()
