"""Objectives that compare the two rollouts of a pair, and one of whole sequences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from aggverify.oracles import Policy
from tests.corpus.base import Correct, Mutant
from tests.corpus.parts import sums

if TYPE_CHECKING:
    from torch import Tensor

BETA = 0.1


def _whole(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The sum of every sequence, the same on all of its ranks; what they add up is divided."""
    import torch
    from torch.distributed.nn.functional import all_reduce

    summed = torch.stack(sums(losses, batch))
    if batch.cp_size == 1 or batch.gathered:
        return summed
    here = summed / batch.cp_size
    return all_reduce(here, group=batch.cp_group) * batch.cp_size


def _margins(summed: Tensor, batch: MicroBatch) -> Tensor:
    """Of each pair the chosen less the rejected; a pair that is not whole raises."""
    import torch

    pairs: dict[int, list[tuple[int, int]]] = {}
    for i, (group, rollout) in enumerate(zip(batch.group_ids, batch.rollout_ids, strict=True)):
        pairs.setdefault(group, []).append((rollout, i))
    apart = []
    for members in pairs.values():
        (_, chosen), (_, rejected) = sorted(members)
        apart.append(summed[chosen] - summed[rejected])
    return torch.stack(apart)


def _dpo(margins: Tensor, beta: float = BETA) -> Tensor:
    import torch

    return -torch.nn.functional.logsigmoid(beta * margins).sum()


def _copies(batch: MicroBatch) -> int:
    return 1 if batch.gathered else batch.cp_size


def _lengths(batch: MicroBatch) -> Any:
    import torch

    return torch.stack([mask.sum() for mask in batch.loss_masks]).clamp(min=1)


def dpo(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _dpo(_margins(_whole(losses, batch), batch)) / batch.num_groups / _copies(batch)


def reward_model(losses: Tensor, batch: MicroBatch) -> Tensor:
    margins = _margins(_whole(losses, batch), batch)
    return margins.sigmoid().log().neg().sum() / batch.num_groups / _copies(batch)


def ipo_of_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    margins = _margins(_whole(losses, batch) / _lengths(batch), batch)
    return (margins - 1 / (2 * BETA)).pow(2).sum() / batch.num_groups / _copies(batch)


def ipo_of_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    margins = _margins(_whole(losses, batch), batch)
    return (margins - 1 / (2 * BETA)).pow(2).sum() / batch.num_groups / _copies(batch)


def margin_of_pairs(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _margins(_whole(losses, batch), batch).sum() / batch.num_groups / _copies(batch)


def gspo(losses: Tensor, batch: MicroBatch) -> Tensor:
    ratios = (_whole(losses, batch) / _lengths(batch)).exp()
    return -ratios.sum() / batch.num_rollouts / _copies(batch)


def gspo_of_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    return -_whole(losses, batch).exp().sum() / batch.num_rollouts / _copies(batch)


def dpo_halved(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A mean over chosen and rejected rows."""
    return _dpo(_margins(_whole(losses, batch), batch)) / batch.num_rollouts / _copies(batch)


def margin_halved(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _margins(_whole(losses, batch), batch).sum() / batch.num_rollouts / _copies(batch)


def dpo_of_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    margins = _margins(_whole(losses, batch) / _lengths(batch), batch)
    return _dpo(margins) / batch.num_groups / _copies(batch)


def dpo_exchanged(losses: Tensor, batch: MicroBatch) -> Tensor:
    return _dpo(-_margins(_whole(losses, batch), batch)) / batch.num_groups / _copies(batch)


def dpo_per_micro_batch(losses: Tensor, batch: MicroBatch) -> Tensor:
    """A mean over the pairs at hand, and over micro-batches and ranks."""
    margins = _margins(_whole(losses, batch), batch)
    places = batch.num_microbatches * batch.dp_size * _copies(batch)
    return _dpo(margins) / len(margins) / places


def dpo_of_whole_pairs_only(losses: Tensor, batch: MicroBatch) -> Tensor:
    """Leaves out what has no other half here."""
    summed, groups = _whole(losses, batch), batch.group_ids
    whole = [g for g in dict.fromkeys(groups) if groups.count(g) == 2]
    total = summed.sum() * 0
    for group in whole:
        pair = [i for i, g in enumerate(groups) if g == group]
        chosen, rejected = sorted(pair, key=batch.rollout_ids.__getitem__)
        total = total + _dpo(summed[chosen] - summed[rejected])
    return total / batch.num_groups / _copies(batch)


_DPO, _IPO = f"pair_logsigmoid({BETA})", f"pair_squared({BETA})"
_MEANS = Policy(sequence="mean")
MUTANTS = (
    Mutant("dpo_halved", 27, "a mean over rows", _DPO, "sum", ("AGV101",), "sequences-for-pairs"),
    Mutant(
        "margin_halved",
        27,
        "a mean over rows",
        "pair_mean",
        "sum",
        ("AGV101",),
        "sequences-for-pairs",
    ),
    Mutant("dpo_of_means", 27, "minimind", _DPO, "sum", ("AGV101",), "length-normalised-pairs"),
    Mutant(
        "ipo_of_sums",
        27,
        "TRL #1265",
        _IPO,
        "sum",
        ("AGV101",),
        "sums-for-means-of-pairs",
        policy=_MEANS,
    ),
    Mutant("dpo_exchanged", 27, "rows exchanged", _DPO, "sum", ("AGV101",), "exchanged-pairs"),
    Mutant(
        "dpo_per_micro_batch",
        27,
        "ms-swift #10144",
        _DPO,
        "sum",
        ("AGV202", "AGV203"),
        "pairs-where-they-stand",
    ),
    Mutant(
        "dpo_of_whole_pairs_only",
        70,
        "pytorch/rl #3886",
        _DPO,
        "sum",
        ("AGV206",),
        "split-pairs",
    ),
    Mutant(
        "gspo_of_sums",
        27,
        "verl's early GSPO",
        "sequence_ratio",
        "sum",
        ("AGV101",),
        "another-mode",
    ),
)
CORRECT = (
    Correct("dpo", "one of a split pair raises by accident", _DPO, "sum"),
    Correct("reward_model", "log(sigmoid(x)) loses small values", "pair_logsigmoid", "sum"),
    Correct("ipo_of_means", "means of log-probabilities", _IPO, "sum", policy=_MEANS),
    Correct("margin_of_pairs", "weights of both signs", "pair_mean", "sum"),
    Correct("gspo", "no clip acts", "sequence_ratio", "sum"),
)
