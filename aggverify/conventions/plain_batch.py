"""Micro-batches as the script of a finding has them, as data: what a reducer usually asks for, also
once it is mended, and what this one asks for beside that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np

from aggverify.conventions.base import Site
from aggverify.conventions.plain_text import listed, named, number, row, tensor, tensors
from aggverify.conventions.rows import Places, Rows, places
from aggverify.conventions.scripted import PlainData, PlainSite
from aggverify.conventions.step_batches import Totals, numbers
from aggverify.conventions.token_labels import NAMES, sequences_plainly
from aggverify.steps.case import Case
from aggverify.steps.layouts import Piece, owned_pieces, positions, visible_pieces

_NOWHERE: Any = None
"""No tensor is made."""
_USUAL = frozenset(
    {
        *("loss_masks", "local_masks", "response_lengths", "total_lengths", "step_rollout_tokens"),
        *("rollout_tokens", "group_tokens", "num_rollouts", "num_groups", "num_tokens"),
        *("num_microbatches", "dp_rank", "dp_size", "cp_rank", "cp_size"),
    }
)
"""What many reducers ask for."""
_OF_THE_STEP = frozenset(
    {
        *("num_rollouts", "num_groups", "num_tokens", "num_microbatches", "step_rollout_tokens"),
        *("num_samples", "num_valid_samples", "step_width", "step_masks", "divisor", "gathered"),
        *("step_group_ids", "dp_size", "cp_size", "cp_kind", "per_token"),
    }
)
"""The same in every micro-batch."""
_BY_THE_CALL = frozenset({"mode", "dp_group", "cp_group", "dp_cp_group", "padded", "rows"})
"""What is no data."""
_PADDED = """\
class MicroBatch(SimpleNamespace):
    def padded(self, x, side="right", width="micro-batch"):
        rows = [*(x.split([*map(len, self.local_masks)]) if torch.is_tensor(x) else x)]
        rows += [x[0].new_zeros(self.step_width)] * (width == "step")
        return torch.nn.utils.rnn.pad_sequence(rows, True, 0.0, side)[: len(self.local_masks)]

    rows = lambda self, x, **by: (self.padded(x, **by), self.padded(self.local_masks, **by))"""


@dataclass(frozen=True, slots=True)
class Batches:
    """Micro-batches of a step: what they tell, and what makes one of it."""

    told: PlainData
    made: str
    """An expression of ``step`` and ``told``, of its own memory."""
    code: str
    """What that takes."""


def batches(
    site: PlainSite,
    rows: Rows | None = None,
    *,
    mode: bool = False,
    tokens: bool = False,
    asked: frozenset[str] | None,
) -> Batches:
    """``asked``: the attributes that are read, None where that is not known; ``rows``: in which
    form the mask is; ``mode``: whether they have ``MODE``; ``tokens``: they have those, and
    ``groups`` have a name."""
    padded = asked is None or bool({"padded", "rows"} & asked)
    given, more = ["**copy.deepcopy(step | told)"], list[str]()
    if tokens:
        given += ["**groups", "tokens=own"]
    else:
        given += ["dp_group=dp_group", "cp_group=cp_group"]
        more += ["dp_cp_group=dist.group.WORLD"] * (asked is None or "dp_cp_group" in asked)
    more += ["mode=MODE"] * mode
    lines = ",\n    ".join(", ".join(words) for words in (given, more) if words)
    made = f"{'MicroBatch' if padded else 'SimpleNamespace'}({lines})"
    sequences = any(name in text for text in site.texts or () for name in NAMES)
    return Batches(_told(site, rows, asked, sequences), made, _PADDED if padded else "")


def _told(
    site: PlainSite, rows: Rows | None, asked: frozenset[str] | None, sequences: bool
) -> PlainData:
    cells: list[tuple[str, ...]] = []
    step: dict[str, str] = {}
    for d, c in ranks(site.case):
        place, own = _place(site, d, c), []
        totals = Totals(place)
        for k in range(site.case.layout.num_microbatches):
            values = dict(_values(place, k, totals, rows))
            if asked is not None:
                wanted = _USUAL | _by_what_there_is(site) | asked
                values = {name: text for name, text in values.items() if name in wanted}
            if sequences:
                values |= sequences_plainly(place, k)
            step = {name: text for name, text in values.items() if name in _OF_THE_STEP}
            own.append(named({n: t for n, t in values.items() if n not in step}, 8, 40))
        cells.append(tuple(own))
    return PlainData(named(step, 0, 7), tuple(cells))


def ranks(case: Case) -> Iterator[tuple[int, int]]:
    """Data- and context-parallel rank of each."""
    return ((d, c) for d in range(case.layout.dp_size) for c in range(case.layout.cp_size))


def _by_what_there_is(site: PlainSite) -> frozenset[str]:
    """What a reducer may have to ask for on such a step, and on no other."""
    found = {"original_masks"} if any(s.original_mask for s in site.case.step.samples) else set()
    found |= {"divisor"} if site.divisor is not None else set()
    return frozenset(found | ({"gathered"} if site.case.layout.cp_kind == "gathered" else set()))


def _place(site: PlainSite, d: int, c: int) -> Site:
    given = (site.case, site.mode, site.divisor, site.per_token, d, c, None, None, _NOWHERE)
    found = Site(*given, counts_rejected=site.counts_rejected, elsewhere=site.elsewhere)
    return replace(found, generations=site.generations)


def _values(
    place: Site, k: int, totals: Totals, rows: Rows | None = None
) -> Iterator[tuple[str, str]]:
    """Every attribute of ``MicroBatch`` that is data, as a literal."""
    step, rank = place.case.step, place.case.layout.micro_batches[place.dp_rank]
    samples = [step.samples[i] for i in rank[k]]
    seen = visible(place.case, place.dp_rank, place.cp_rank, k)
    local = [[s.loss_mask[t] for t in own] for s, own in zip(samples, seen, strict=True)]
    yield "loss_masks", tensors(s.loss_mask for s in samples)
    yield "original_masks", tensors(s.original_mask or s.loss_mask for s in samples)
    yield "local_masks", tensors(local)
    form = None if rows is None else places(rows, place.case, place.dp_rank, place.cp_rank, k)
    yield "mask", formed(local, form, 0)
    packed = form.lengths if form else tuple(map(len, local))
    yield "cu_seqlens", f"tensor({row([*accumulate(packed, initial=0)])}).int()"
    yield "local_positions", tensors(seen)
    lengths = [[step.samples[i].response_length for i in cell] for cell in rank]
    for unit in ("group", "rollout"):
        yield (
            f"window_{unit}_ids",
            listed(row([getattr(step.samples[i], unit) for i in cell]) for cell in rank),
        )
    yield "step_group_ids", row([s.group for s in step.samples])
    yield "window_lengths", listed(map(row, lengths))
    yield "window_widths", row([max(own, default=0) for own in lengths])
    yield "window_tokens", row([sum(map(place.counted, cell)) for cell in rank])
    yield "window_masks", listed(tensors(step.samples[i].loss_mask for i in cell) for cell in rank)
    if not place.elsewhere:
        yield "step_masks", tensors(s.loss_mask for s in step.samples)
    for name, value in numbers(place, k, totals, None).items():
        if name not in _BY_THE_CALL:
            yield name, _literal(value)


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return row(value)
    return number(value) if isinstance(value, float) else repr(value)


def visible(case: Case, d: int, c: int, k: int) -> list[list[int]]:
    """Of each sample of a micro-batch the tokens whose losses the rank has there."""
    members = case.layout.micro_batches[d][k]
    return [_tokens(own) for own in visible_pieces(case.step, members, case.layout, c)]


def losses_of(case: Case, d: int, c: int, k: int, rows: Rows | None) -> str:
    """Which of the step's losses these are, in the order and form they are given in."""
    members = case.layout.micro_batches[d][k]
    seen = zip(members, visible(case, d, c, k), strict=True)
    own = [[case.step.offsets[i] + t for t in tokens] for i, tokens in seen]
    return formed(own, None if rows is None else places(rows, case, d, c, k), -1)


def formed(parts: Sequence[list[int]], form: Places | None, fill: int) -> str:
    """Numbers of a micro-batch's tokens, one after the other, or in that form."""
    flat = [number for own in parts for number in own]
    if form is None:
        return tensor(flat)
    filled = np.full(form.shape, fill)
    filled.flat[form.index] = flat
    inner = row(filled.tolist()) if filled.ndim == 1 else listed(map(row, filled.tolist()))
    return f"tensor({inner}).long()"


def owned(case: Case, d: int, c: int, k: int) -> list[list[int]]:
    """Those whose gradient is the rank's."""
    members = case.layout.micro_batches[d][k]
    return [_tokens(own) for own in owned_pieces(case.step, members, case.layout, c)]


def _tokens(pieces: tuple[Piece, ...]) -> list[int]:
    found: list[int] = positions([0], [pieces]).tolist()
    return found
