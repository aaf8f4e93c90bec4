"""A reducer with a kernel of its own, in Triton: it runs on a device only. ``token_mean``."""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,unused-ignore]

from aggverify import MicroBatch

AGGVERIFY = {"mode": "token_mean", "engine": "sum"}
_BLOCK = 128


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _kernel(losses, mask, sums, n, block: tl.constexpr):  # type: ignore[no-untyped-def]
    # Triton looks annotations up among what a kernel may use, and Any is not of that.
    at = tl.program_id(0) * block + tl.arange(0, block)
    kept = tl.load(mask + at, mask=at < n, other=0) != 0
    values = tl.load(losses + at, mask=(at < n) & kept, other=0.0)
    tl.store(sums + tl.program_id(0), tl.sum(values.to(sums.dtype.element_ty), axis=0))


class _MaskedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, losses: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mask)
        ctx.dtype = losses.dtype
        blocks = max(1, triton.cdiv(losses.numel(), _BLOCK))
        wide = torch.float64 if losses.dtype == torch.float64 else torch.float32
        sums = torch.empty(blocks, dtype=wide, device=losses.device)
        _kernel[(blocks,)](losses.contiguous(), mask, sums, losses.numel(), _BLOCK)
        return sums.sum()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        [gradient] = gradients
        (mask,) = ctx.saved_tensors
        return (gradient * mask).to(ctx.dtype), None


def in_one_kernel(losses: torch.Tensor, batch: MicroBatch) -> torch.Tensor:
    """The masked sum of blocks, then of their sums."""
    mask = torch.cat(batch.local_masks).to(torch.int32)
    total: torch.Tensor = _MaskedSum.apply(losses, mask)  # type: ignore[no-untyped-call]
    return total / max(batch.num_tokens, 1)
