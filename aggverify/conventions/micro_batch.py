"""One micro-batch on one rank, as a trainer knows it: what reducers and adapters are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aggverify.conventions.padded_rows import PaddedRows
from aggverify.conventions.token_labels import HasTokens

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

    from aggverify.conventions.lazy_fields import LazyFields


@dataclass(frozen=True, slots=True)
class MicroBatch(HasTokens, PaddedRows):
    """One micro-batch on one rank, and the step's global counts.

    ``losses`` (the reducer's first argument) is 1-D: the samples' local pieces concatenated in the
    order of these lists. Lists have one entry per sample of the micro-batch.
    """

    loss_masks: list[Tensor]
    """Full 0/1 masks over each response, int64, shape ``(response_length,)``."""
    original_masks: list[Tensor]
    """Before tokens were rejected after the fact (TIS); usually the same as ``loss_masks``."""
    local_masks: list[Tensor]
    """The part of each mask this rank's losses stand for, int64; may be empty under CP."""
    response_lengths: list[int]
    total_lengths: list[int]
    """Prompt plus response, in tokens."""
    rollout_ids: list[int]
    group_ids: list[int]
    rollout_tokens: list[int]
    """Unmasked tokens of each sample's whole rollout, over the whole step. Whether rejected ones
    count, here and in all counts below, depends on the declared policy."""
    group_tokens: list[int]
    """Unmasked tokens of each sample's whole prompt group, over the whole step."""
    step_rollout_tokens: list[int]
    """Unmasked tokens of every rollout of the step, in order of first appearance."""
    num_rollouts: int
    """N: rollouts in the step."""
    num_groups: int
    """P: prompt groups in the step."""
    num_tokens: int
    """M: unmasked response tokens in the step."""
    num_microbatches: int
    divisor: float | None
    """The constant mode's L, when one was given."""
    dp_rank: int
    dp_size: int
    cp_rank: int
    cp_size: int
    gathered: bool
    """Whether the losses were gathered over context parallelism: every rank has all of them."""
    dp_group: ProcessGroup | None
    cp_group: ProcessGroup | None
    samples: list[int] = field(default_factory=list)
    """Which of the step's samples these are, by their places in ``step_masks``."""
    mode: str | bool | None = None
    """The mode under the framework's own name, where the function takes it."""
    per_token: bool = False
    """Whether the trainer divides by token counts, as Megatron's ``calculate_per_token_loss``."""
    index: int = 0
    """Which of the rank's micro-batches this is, from 0."""
    cp_kind: str = "zigzag"
    """Tokens that ranks own: ``zigzag``, ``contiguous``, ``gathered``, ``bshd`` (padded rows)."""
    num_samples: int = 0
    """Samples in the step."""
    num_valid_samples: int = 0
    """Samples in the step with an unmasked token."""
    rank_samples: int = 0
    """Samples in all micro-batches of this data-parallel rank."""
    rank_valid_samples: int = 0
    """Of these, those with an unmasked token."""
    rank_rollouts: int = 0
    """Rollouts with a sample in them."""
    rank_groups: int = 0
    """Prompt groups with a sample in them."""
    rank_tokens: int = 0
    """Unmasked tokens in all micro-batches of this data-parallel rank."""
    rank_width: int = 0
    """The longest sample of this data-parallel rank, prompt included."""
    step_width: int = 0
    """The longest response of the step."""
    group_rollouts: list[int] = field(default_factory=list)
    """Rollouts of each sample's prompt group, in the whole step."""
    generation_windows: int = 1
    """Optimizer steps that the generation batch is trained in, this one among them: TRL's
    steps_per_generation over its accumulation steps."""
    generation_tokens: int = 0
    """Unmasked tokens of all of them."""
    dp_cp_group: ProcessGroup | None = None
    """All ranks that share the step."""
    _mask: Tensor | None = field(default=None, repr=False, compare=False)
    _lengths: tuple[int, ...] | None = field(default=None, repr=False, compare=False)
    _lazy: LazyFields | None = field(default=None, repr=False, compare=False)

    @property
    def mask(self) -> Tensor:
        """Local masks, concatenated as the losses are, or padded rows if an adapter asks so."""
        import torch

        return torch.cat(self.local_masks) if self._mask is None else self._mask

    @property
    def cu_seqlens(self) -> Tensor:
        """Starts of the samples in the losses' form, one after the other, and the end; int32."""
        import torch

        lengths = [*map(len, self.local_masks)] if self._lengths is None else self._lengths
        ends = torch.tensor((0, *lengths), device=self.local_masks[0].device).cumsum(0)
        return ends.int()

    @property
    def window_masks(self) -> list[list[Tensor]]:
        """Return the rank's full masks, for code that counts before the first backward."""
        return [] if self._lazy is None else self._lazy.window_masks()

    @property
    def window_lengths(self) -> list[list[int]]:
        """Response lengths of all micro-batches of this rank."""
        return [] if self._lazy is None else self._lazy.window_lengths()

    @property
    def window_group_ids(self) -> list[list[int]]:
        """Prompt groups of the samples of all micro-batches of this rank."""
        return [] if self._lazy is None else self._lazy.window_ids("group")

    @property
    def window_rollout_ids(self) -> list[list[int]]:
        """Their rollouts."""
        return [] if self._lazy is None else self._lazy.window_ids("rollout")

    @property
    def window_widths(self) -> list[int]:
        """The longest response of each micro-batch of this rank."""
        return [max(lengths, default=0) for lengths in self.window_lengths]

    @property
    def window_tokens(self) -> list[int]:
        """Unmasked tokens of each micro-batch of this rank; its own are those at ``index``."""
        return [] if self._lazy is None else self._lazy.window_tokens()

    @property
    def step_masks(self) -> list[Tensor]:
        """Full masks of every sample of the step: the driver's view."""
        return [] if self._lazy is None else self._lazy.step_masks()

    @property
    def step_group_ids(self) -> list[int]:
        """Their prompt groups."""
        return [] if self._lazy is None else self._lazy.step_ids()

    @property
    def local_positions(self) -> list[Tensor]:
        """Of each sample, which tokens of its response this rank's losses stand for."""
        return [] if self._lazy is None else self._lazy.local_positions()
