"""What reducers with branches have in common: the plain road, which is right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aggverify.conventions import MicroBatch

if TYPE_CHECKING:
    from torch import Tensor

Reducer = Callable[..., Any]
R = TypeVar("R", bound=Reducer)


@dataclass(frozen=True, slots=True)
class Branchy:
    """A reducer with a branch, its mode, and where such code is met."""

    function: str
    mode: str
    met: str
    check: str
    """The check that must find it, where it is wrong."""
    says: str
    """What the finding's message must contain."""
    bug: str
    """The known bug that it may be told to be; "" where none of them is its cause."""


def entry(
    table: list[Branchy],
    mode: str,
    met: str,
    *,
    check: str = "holds_where_code_branches",
    says: str = "",
    bug: str = "",
) -> Callable[[R], R]:
    """Put a reducer into a table."""

    def put(function: R) -> R:
        table.append(Branchy(function.__name__, mode, met, check, says, bug))
        return function

    return put


def mask_of(batch: MicroBatch) -> Tensor:
    """The rank's own part of all masks."""
    import torch

    return torch.cat(batch.local_masks)


def kept(losses: Tensor, batch: MicroBatch) -> Tensor:
    """The losses with zeros behind the mask."""
    import torch

    return torch.where(mask_of(batch).bool(), losses, torch.zeros_like(losses))


def token_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).sum() / max(batch.num_tokens, 1)


def pieces(losses: Tensor, batch: MicroBatch) -> list[Tensor]:
    """The losses of each sample, zeros behind the mask."""
    return list(kept(losses, batch).split([len(mask) for mask in batch.local_masks]))


def divided(losses: Tensor, batch: MicroBatch, counts: Sequence[float]) -> Tensor:
    """Each sample's sum over its own count."""
    import torch

    parts = zip(pieces(losses, batch), counts, strict=True)
    return torch.stack([piece.sum() / max(count, 1) for piece, count in parts]).sum()


def sample_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return divided(losses, batch, [n * batch.num_rollouts for n in batch.rollout_tokens])


def prompt_mean(losses: Tensor, batch: MicroBatch) -> Tensor:
    return divided(losses, batch, [n * batch.num_groups for n in batch.group_tokens])
