"""Reducers that train on the right loss and log what stands behind the mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aggverify.conventions import MicroBatch
from tests.corpus.base import Correct, Mutant
from tests.corpus.parts import kept

if TYPE_CHECKING:
    from torch import Tensor

Logged = tuple["Tensor", dict[str, Any]]


def _token_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def mean_over_everything(losses: Tensor, batch: MicroBatch) -> Logged:
    count = sum(mask.sum() for mask in batch.local_masks)
    return _token_mean(losses, batch), {"mean_loss": [losses.sum().detach(), count]}


def multiplied_by_the_mask(losses: Tensor, batch: MicroBatch) -> Logged:
    mask = torch.cat(batch.local_masks)
    return _token_mean(losses, batch), {"mean_loss": [(losses.detach() * mask).sum(), mask.sum()]}


def clip_fraction_of_everything(losses: Tensor, batch: MicroBatch) -> Logged:
    """Bounded: one huge value changes it by one token."""
    above = [(losses.detach() > 4).sum(), sum(mask.sum() for mask in batch.local_masks)]
    return _token_mean(losses, batch), {"clipfrac": above}


def spread_of_the_padded_rows(losses: Tensor, batch: MicroBatch) -> Logged:
    rows, masks = batch.rows(losses.detach())
    return _token_mean(losses, batch), {"squares": [(rows**2).sum(), masks.sum()]}


def kl_logged_with_padding(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Logged:
    loss = _token_mean(losses, batch) + 0.05 * _token_mean(kl, batch)
    return loss, {"kl": [kl.sum().detach(), float(len(batch.loss_masks))]}


def kl_metric_clamped(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Logged:
    """Clamped to +-1, so that nothing overflows, and averaged over all there is."""
    loss = _token_mean(losses, batch) + 0.05 * _token_mean(kl, batch)
    return loss, {"kl": [kl.detach().clamp(-1, 1).sum(), float(kl.numel())]}


def masked_mean_logged(losses: Tensor, batch: MicroBatch) -> Logged:
    here = kept(losses, batch).detach()
    count = sum(mask.sum() for mask in batch.local_masks)
    return _token_mean(losses, batch), {"mean_loss": [here.sum(), count], "max": here.abs().sum()}


def kl_logged_where_kept(losses: Tensor, batch: MicroBatch, kl: Tensor) -> Logged:
    loss = _token_mean(losses, batch) + 0.05 * _token_mean(kl, batch)
    count = sum(mask.sum() for mask in batch.local_masks)
    return loss, {"kl": [kept(kl, batch).sum().detach(), count]}


MUTANTS = tuple(
    Mutant(name, 37, "TRL #6803", "token_mean", "sum", codes, "masked-values-logged")
    for name, codes in (
        ("mean_over_everything", ("AGV514",)),
        ("multiplied_by_the_mask", ("AGV515",)),
        ("clip_fraction_of_everything", ("AGV514",)),
        ("spread_of_the_padded_rows", ("AGV514",)),
        ("kl_logged_with_padding", ("AGV514",)),
        ("kl_metric_clamped", ("AGV514",)),
    )
)
CORRECT = (
    Correct("masked_mean_logged", "logs beside the loss", "token_mean", "sum"),
    Correct("kl_logged_where_kept", "a term is logged", "token_mean", "sum"),
)
