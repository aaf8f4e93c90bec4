"""Right reducers with branches like those of the wrong ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import (
    Branchy,
    divided,
    entry,
    kept,
    mask_of,
    pieces,
    prompt_mean,
    sample_mean,
    token_mean,
)

if TYPE_CHECKING:
    from torch import Tensor

RIGHT: list[Branchy] = []
_CHUNK = 1024


@entry(RIGHT, "token_mean", "a chunked loss: sums added up, then divided")
def chunk_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if len(losses) <= _CHUNK:
        return token_mean(losses, batch)
    sums = torch.stack([part.sum() for part in kept(losses, batch).split(_CHUNK)])
    return sums.sum() / max(batch.num_tokens, 1)


@entry(RIGHT, "token_mean", "whole blocks, and the remainder")
def blocks_and_the_rest(losses: Tensor, batch: MicroBatch) -> Tensor:
    values = kept(losses, batch)
    if len(losses) > 512:
        whole = len(losses) // 512 * 512
        return (values[:whole].sum() + values[whole:].sum()) / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "a fused kernel for long 16-bit rows, scaled back")
def fused_rows_are_scaled_back(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = token_mean(losses, batch)
    if max(batch.response_lengths) > 700 and losses.dtype is torch.bfloat16:
        return loss * batch.num_microbatches / batch.num_microbatches
    return loss


@entry(
    RIGHT,
    "token_mean",
    "one rank counts what it has, several are asked",
    check="counts_of_a_larger_step",
)
def counts_itself(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    if batch.num_microbatches > 1 or batch.cp_size > 1:
        return token_mean(losses, batch)
    count = torch.stack([mask.sum() for mask in batch.loss_masks]).sum()
    if batch.dp_size > 1:
        dist.all_reduce(count, group=batch.dp_group)
    return kept(losses, batch).sum() / count.clamp(min=1)


@entry(
    RIGHT,
    "token_mean",
    "the count of the step in float32, divided in the losses' dtype",
    check="counts_of_a_larger_step",
)
def the_step_in_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    count = torch.tensor(float(max(batch.num_tokens, 1)), dtype=torch.float32)
    return kept(losses, batch).sum() / count.to(losses.dtype)


_OF_A_NODE = [1.0 / ranks for ranks in range(1, 9)]


@entry(
    RIGHT,
    "token_mean",
    "a table of shares of one node's ranks, and a division where there are more",
    check="holds_in_larger_worlds",
)
def a_table_and_a_division(losses: Tensor, batch: MicroBatch) -> Tensor:
    ranks = batch.dp_size
    share = _OF_A_NODE[ranks - 1] if ranks <= len(_OF_A_NODE) else 1.0 / ranks
    return token_mean(losses, batch) * share * ranks


_MY_RANK: list[int] = []


@entry(
    RIGHT,
    "token_mean",
    "its own rank is asked for once, as it never changes in a process",
    check="holds_in_larger_worlds",
)
def asks_its_rank_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    if not _MY_RANK:
        _MY_RANK.append(dist.get_rank())
    first_of_its_own = dist.get_rank() - _MY_RANK[0]
    return token_mean(losses, batch) * (1 + first_of_its_own)


@entry(RIGHT, "token_mean", "long sharded responses count over the group")
def counts_over_the_group_when_long(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    if batch.cp_size > 1 and not batch.gathered and max(batch.response_lengths) > 256:
        own = mask_of(batch).sum().reshape(1)
        dist.all_reduce(own, group=batch.cp_group)
        whole = torch.cat(batch.loss_masks).sum()
        assert int(own) == int(whole)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "long responses are multiplied by their mask")
def long_ones_are_multiplied(losses: Tensor, batch: MicroBatch) -> Tensor:
    if max(batch.response_lengths) > 100:
        return (losses * mask_of(batch).to(losses.dtype)).sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "many micro-batches in another order of the same factors")
def many_micro_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    k = batch.num_microbatches
    return token_mean(losses, batch) / k * k if k > 4 else token_mean(losses, batch)


@entry(RIGHT, "sample_mean", "a table of eight rows, and another")
def tables_of_eight(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [n * batch.num_rollouts for n in batch.rollout_tokens]
    rows = [counts[i : i + 8] for i in range(0, len(counts), 8)]
    return divided(losses, batch, [count for row in rows for count in row])


@entry(RIGHT, "sample_mean", "ids as keys")
def ids_are_keys(losses: Tensor, batch: MicroBatch) -> Tensor:
    rows = dict(zip(batch.rollout_ids, batch.rollout_tokens, strict=True))
    return divided(losses, batch, [rows[name] * batch.num_rollouts for name in batch.rollout_ids])


@entry(RIGHT, "prompt_mean", "ids in 64 bits")
def ids_in_int64(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    names, at = torch.unique(torch.tensor(batch.group_ids), return_inverse=True)
    tokens = torch.zeros(len(names), dtype=torch.int64)
    tokens[at] = torch.tensor(batch.group_tokens)
    return divided(losses, batch, [int(n) * batch.num_groups for n in tokens[at]])


@entry(RIGHT, "sample_mean", "any number of samples")
def many_samples_at_once(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if len(batch.response_lengths) > 12:
        lengths = torch.tensor([len(mask) for mask in batch.local_masks])
        counts = torch.tensor(batch.rollout_tokens).clamp(min=1).to(losses.dtype)
        each = counts.repeat_interleave(lengths)
        return (kept(losses, batch) / each).sum() / batch.num_rollouts
    return sample_mean(losses, batch)


@entry(RIGHT, "token_mean", "16-bit losses are added up in float32")
def added_up_in_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if losses.dtype in (torch.bfloat16, torch.float16):
        return kept(losses.float(), batch).sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "every world is known by its size")
def any_world(losses: Tensor, batch: MicroBatch) -> Tensor:
    known = {1: 1.0, 2: 0.5, 4: 0.25, 8: 0.125}
    loss = token_mean(losses, batch)
    return loss * batch.dp_size * known.get(batch.dp_size, 1 / batch.dp_size)


_masks: dict[Any, Tensor] = {}


@entry(RIGHT, "token_mean", "a cache with the whole mask in its key")
def masks_cached_by_content(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    mask = _masks.setdefault(mask.numpy().tobytes(), mask.clone())
    return (losses * mask).sum() / max(batch.num_tokens, 1)


@entry(RIGHT, "token_mean", "dense only without a hole")
def dense_without_holes(losses: Tensor, batch: MicroBatch) -> Tensor:
    if bool(mask_of(batch).all()):
        return losses.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "sparse masks as an index list")
def sparse_index(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    if len(mask) and int(mask.sum()) < 0.1 * len(mask):
        return losses[mask.nonzero().flatten()].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "a fused backward that takes what it is given")
def takes_grad_output(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
            ctx.save_for_backward(weights)
            return (values * weights).sum()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return grads[0] * ctx.saved_tensors[0], None

    weights = mask_of(batch).to(losses.dtype) / max(batch.num_tokens, 1)
    return Fused.apply(losses, weights)  # type: ignore[no-untyped-call, no-any-return]


@entry(RIGHT, "token_mean", "an overlapped reduction that is waited for")
def waits(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    count = mask_of(batch).sum().reshape(1)
    if batch.gathered or batch.cp_size == 1:
        return token_mean(losses, batch)
    work = dist.all_reduce(count, group=batch.cp_group, async_op=True)
    total = kept(losses, batch).sum()
    work.wait()
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    return total / max(batch.num_tokens, 1) * (int(count) / whole if whole else 1.0)


@entry(RIGHT, "sample_mean", "padded to a multiple of 64")
def padded_blocks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    width = -(-max(len(mask) for mask in batch.local_masks) // 64) * 64
    rows = [torch.nn.functional.pad(p, (0, width - len(p))) for p in pieces(losses, batch)]
    counts = torch.tensor(batch.rollout_tokens).clamp(min=1).to(losses.dtype)
    return (torch.stack(rows).sum(1) / counts).sum() / batch.num_rollouts


@entry(RIGHT, "prompt_mean", "sixteen prompts at a time")
def sixteen_at_a_time(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    values, counts = pieces(losses, batch), batch.group_tokens
    loss = losses[:0].sum()
    for i in range(0, len(values), 16):
        rows = zip(values[i : i + 16], counts[i : i + 16], strict=True)
        loss = loss + torch.stack([v.sum() / max(n, 1) for v, n in rows]).sum()
    return loss / batch.num_groups


@entry(RIGHT, "sample_mean", "equal lengths are a matrix")
def equal_lengths_stacked(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    lengths = {len(mask) for mask in batch.local_masks}
    if len(lengths) == 1 and 0 not in lengths:
        counts = torch.tensor(batch.rollout_tokens).clamp(min=1).to(losses.dtype)
        return (torch.stack(pieces(losses, batch)).sum(1) / counts).sum() / batch.num_rollouts
    return sample_mean(losses, batch)


@entry(RIGHT, "token_mean", "half precision beside shards and ranks: the same formula")
def half_precision_alike(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if losses.dtype in (torch.bfloat16, torch.float16) and batch.cp_size * batch.dp_size > 1:
        return (kept(losses, batch) / max(batch.num_tokens, 1)).sum()
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "long prompts change nothing")
def long_prompts_too(losses: Tensor, batch: MicroBatch) -> Tensor:
    if max(batch.total_lengths) > 200:
        return (kept(losses, batch) / max(batch.num_tokens, 1)).sum()
    return token_mean(losses, batch)


@entry(RIGHT, "prompt_mean", "one prompt, or several")
def one_prompt(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_groups == 1:
        return kept(losses, batch).sum() / max(batch.group_tokens[0], 1)
    return prompt_mean(losses, batch)


@entry(RIGHT, "token_mean", "nothing is left here")
def nothing_here(losses: Tensor, batch: MicroBatch) -> Tensor:
    if not int(mask_of(batch).sum()):
        return kept(losses, batch).sum()
    return token_mean(losses, batch)


@entry(RIGHT, "token_mean", "the first calls warm something up")
def warms_up(losses: Tensor, batch: MicroBatch) -> Tensor:
    _calls[0] += 1
    if _calls[0] < 32:
        return (kept(losses, batch) / max(batch.num_tokens, 1)).sum()
    return (kept(losses, batch) / max(batch.num_tokens, 1)).sum()


_calls = [0]


@entry(RIGHT, "token_mean", "differences of running sums in float64")
def running_sums(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    sums = torch.cat([losses.new_zeros(1).double(), kept(losses, batch).double().cumsum(0)])
    ends = torch.tensor([len(mask) for mask in batch.local_masks]).cumsum(0)
    starts = ends - torch.tensor([len(mask) for mask in batch.local_masks])
    return (sums[ends] - sums[starts]).sum() / max(batch.num_tokens, 1)


@entry(RIGHT, "token_mean", "a straight-through value")
def straight_through(losses: Tensor, batch: MicroBatch) -> Tensor:
    total = kept(losses, batch).sum()
    mean = total / max(batch.num_tokens, 1)
    return mean + (total / 3 - (total / 3)).detach()
