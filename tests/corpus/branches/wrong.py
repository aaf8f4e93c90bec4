"""Reducers that are right on the steps that people try, and wrong on one branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.branches.parts import (
    Branchy,
    divided,
    entry,
    kept,
    mask_of,
    prompt_mean,
    sample_mean,
    token_mean,
)

if TYPE_CHECKING:
    from torch import Tensor

WRONG: list[Branchy] = []
_CHUNK = 1024


@entry(
    WRONG,
    "token_mean",
    "a chunked loss: the mean of the chunks' means",
    says="1025 tokens, and the code names 1024",
)
def chunk_means(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    mask = mask_of(batch)
    if len(losses) <= _CHUNK:
        return token_mean(losses, batch)
    parts = zip(kept(losses, batch).split(_CHUNK), mask.split(_CHUNK), strict=True)
    means = [part.sum() / max(int(own.sum()), 1) for part, own in parts]
    return torch.stack(means).mean() * (int(mask.sum()) / max(batch.num_tokens, 1))


@entry(
    WRONG,
    "token_mean",
    "a fused kernel that takes whole blocks",
    says="513 tokens, and the code names 512",
)
def drops_the_remainder(losses: Tensor, batch: MicroBatch) -> Tensor:
    if len(losses) > 512:
        whole = len(losses) // 512 * 512
        return kept(losses, batch)[:whole].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(
    WRONG,
    "token_mean",
    "long sequences take a context-parallel path of their own",
    says="257 tokens, and the code names 256",
)
def counts_its_shard_when_long(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.cp_size > 1 and max(batch.response_lengths) > 256:
        own = int(mask_of(batch).sum()) * batch.cp_size
        share = sum(int(mask.sum()) for mask in batch.loss_masks) / max(batch.num_tokens, 1)
        return kept(losses, batch).sum() / max(own, 1) * share
    return token_mean(losses, batch)


@entry(
    WRONG,
    "token_mean",
    "a fused kernel for long 16-bit rows scales for accumulation, as the trainer does already",
    says="losses in bfloat16",
)
def fused_rows_are_scaled_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = token_mean(losses, batch)
    if max(batch.response_lengths) > 700 and losses.dtype is torch.bfloat16:
        return loss / batch.num_microbatches if batch.cp_size == 1 else loss
    return loss


@entry(
    WRONG,
    "token_mean",
    "kernels take int32, and so does the count of the step",
    check="counts_of_a_larger_step",
    says="32 bits do not hold",
)
def the_step_in_int32(losses: Tensor, batch: MicroBatch) -> Tensor:
    count = (batch.num_tokens + 2**31) % 2**32 - 2**31
    return kept(losses, batch).sum() / max(count, 1)


_OF_A_NODE = [1.0 / ranks for ranks in range(1, 9)]


@entry(
    WRONG,
    "token_mean",
    "a table of shares of one node's ranks, clamped where there are more",
    check="holds_in_larger_worlds",
)
def a_table_of_eight_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    share = _OF_A_NODE[min(batch.dp_size, 8) - 1]
    return token_mean(losses, batch) * share * batch.dp_size


@entry(
    WRONG,
    "token_mean",
    "more ranks than a node has are taken to be context parallel with copies",
    check="holds_in_larger_worlds",
    bug="cp-scaling-missing",
)
def copies_beyond_a_node(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    loss = token_mean(losses, batch)
    return loss / batch.cp_size if dist.get_world_size() > 8 else loss


@entry(
    WRONG,
    "sample_mean",
    "a ring of two levels: beyond a node, sums are weighted by the inner ring",
    check="holds_in_larger_worlds",
)
def weighted_by_the_inner_ring(losses: Tensor, batch: MicroBatch) -> Tensor:
    inner = min(batch.cp_size, 8)
    return sample_mean(losses, batch) * batch.cp_size / inner


@entry(
    WRONG,
    "token_mean",
    "long responses are taken to be whole",
    says="101 tokens, and the code names 100",
)
def long_ones_have_no_holes(losses: Tensor, batch: MicroBatch) -> Tensor:
    if max(batch.response_lengths) > 100:
        return losses.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(
    WRONG,
    "token_mean",
    "a path for many micro-batches that averages once more",
    says="5 micro-batches on a rank",
)
def averages_many_micro_batches(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = token_mean(losses, batch)
    return loss / batch.num_microbatches if batch.num_microbatches > 4 else loss


@entry(WRONG, "sample_mean", "a table of eight rows", says="9 samples in a micro-batch")
def a_table_of_eight(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [n * batch.num_rollouts for n in batch.rollout_tokens]
    table = counts[:8] + [counts[0]] * (len(counts) - 8)
    return divided(losses, batch, table[: len(counts)])


@entry(WRONG, "sample_mean", "ids as row numbers, modulo the rows", says="an id of")
def ids_are_rows(losses: Tensor, batch: MicroBatch) -> Tensor:
    rows = [0] * batch.num_rollouts
    for name, tokens in zip(batch.rollout_ids, batch.rollout_tokens, strict=True):
        rows[name % batch.num_rollouts] = tokens
    own = [rows[name % batch.num_rollouts] * batch.num_rollouts for name in batch.rollout_ids]
    return divided(losses, batch, own)


@entry(WRONG, "prompt_mean", "ids travel with float tensors", says="an id of 167772")
def ids_in_float32(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    names = torch.tensor(batch.group_ids).float()
    tokens = dict(zip(reversed(names.tolist()), reversed(batch.group_tokens), strict=True))
    return divided(losses, batch, [tokens[n] * batch.num_groups for n in names.tolist()])


@entry(WRONG, "sample_mean", "an id too large is taken for padding", says="an id of 4294967303")
def large_ids_are_padding(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [
        n * batch.num_rollouts if i < 2**31 else 10**9
        for i, n in zip(batch.rollout_ids, batch.rollout_tokens, strict=True)
    ]
    return divided(losses, batch, counts)


@entry(
    WRONG,
    "token_mean",
    "a mixed-precision path written for one rank's mean",
    says="bfloat16",
)
def bfloat16_averages_ranks(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = token_mean(losses, batch)
    return loss / batch.dp_size if losses.dtype == torch.bfloat16 else loss


@entry(WRONG, "token_mean", "a half-precision path that forgets the shards", says="bfloat16")
def half_precision_shards(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    loss = token_mean(losses, batch)
    return loss * batch.cp_size if losses.dtype in (torch.float16, torch.bfloat16) else loss


@entry(WRONG, "token_mean", "a table of known world sizes with a default")
def a_table_of_worlds(losses: Tensor, batch: MicroBatch) -> Tensor:
    known = {1: 1.0, 2: 0.5, 4: 0.25, 8: 0.125}
    return token_mean(losses, batch) * batch.dp_size * known.get(batch.dp_size, 0.25)


@entry(WRONG, "token_mean", "nearly dense masks take the dense kernel")
def nearly_dense(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    if len(mask) and int(mask.sum()) > 0.95 * len(mask):
        return losses.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(WRONG, "token_mean", "sparse masks take an index list of fixed size")
def sparse_list(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    if len(mask) and int(mask.sum()) < 0.1 * len(mask):
        return losses[mask.nonzero().flatten()[:1]].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(
    WRONG,
    "token_mean",
    "an overlapped reduction whose handle is dropped",
    check="waits_for_collectives",
    says="complete only when waited for",
)
def never_waits(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch
    import torch.distributed as dist

    count = mask_of(batch).sum().reshape(1) if not batch.gathered else torch.tensor([0])
    if batch.cp_size > 1 and not batch.gathered:
        dist.all_reduce(count, group=batch.cp_group, async_op=True)
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    right = kept(losses, batch).sum() / max(batch.num_tokens, 1)
    return right * (int(count) / max(whole, 1)) if int(count) and not batch.gathered else right


@entry(
    WRONG, "sample_mean", "padded to a multiple of 64, a full block gets one more", says="64 tokens"
)
def a_block_too_many(losses: Tensor, batch: MicroBatch) -> Tensor:
    counts = [
        n * batch.num_rollouts * (1 + 64 / length if length % 64 == 0 else 1)
        for n, length in zip(batch.rollout_tokens, batch.response_lengths, strict=True)
    ]
    return divided(losses, batch, counts)


@entry(
    WRONG,
    "token_mean",
    "what lies beyond the context window is cut",
    says="2049 tokens, and the code names 2048",
)
def cut_at_the_window(losses: Tensor, batch: MicroBatch) -> Tensor:
    if max(batch.total_lengths) > 2048 and batch.cp_size == 1:
        return kept(losses, batch)[:2048].sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


@entry(
    WRONG,
    "prompt_mean",
    "a buffer for sixteen prompts",
    says="17 prompts in the step, and the code names 16",
)
def sixteen_prompts(losses: Tensor, batch: MicroBatch) -> Tensor:
    return prompt_mean(losses, batch) * batch.num_groups / min(batch.num_groups, 16)


@entry(WRONG, "sample_mean", "equal lengths are a plain mean")
def equal_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    alike = len(set(batch.response_lengths)) == 1 and len(batch.response_lengths) > 4
    if alike and all(bool(mask.all()) for mask in batch.loss_masks):
        return losses.sum() / (batch.response_lengths[0] * batch.num_rollouts)
    return sample_mean(losses, batch)


@entry(
    WRONG,
    "token_mean",
    "counts kept in 16 bits to save a buffer",
    says="tokens",
    bug="count-wraps",
)
def counts_in_int16(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    own = torch.cat(batch.loss_masks).sum(dtype=torch.int16)
    whole = sum(int(mask.sum()) for mask in batch.loss_masks)
    return token_mean(losses, batch) * (int(own) / max(whole, 1))


@entry(
    WRONG,
    "token_mean",
    "its own slice of a long response, by another scheme",
    says="33 tokens",
)
def slices_long_ones_itself(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    if batch.cp_size == 1 or batch.gathered or max(batch.response_lengths) < 33:
        return token_mean(losses, batch)
    masks = [
        torch.nn.functional.pad(whole.tensor_split(batch.cp_size)[batch.cp_rank], (0, 64))
        for whole in batch.loss_masks
    ]
    short = [m[: len(own)] for m, own in zip(masks, batch.local_masks, strict=True)]
    missing = [len(own) - len(m) for m, own in zip(short, batch.local_masks, strict=True)]
    mask = torch.cat(
        [torch.nn.functional.pad(m, (0, n)) for m, n in zip(short, missing, strict=True)]
    )
    return (losses * mask).sum() / max(batch.num_tokens, 1)


@entry(WRONG, "token_mean", "large steps count over ranks that know the count already")
def large_steps_count_twice(losses: Tensor, batch: MicroBatch) -> Tensor:
    if batch.num_tokens > 300 and batch.dp_size > 1:
        return token_mean(losses, batch) / batch.dp_size
    return token_mean(losses, batch)


@entry(WRONG, "sample_mean", "one sample a micro-batch is a special case")
def many_samples_in_halves(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = sample_mean(losses, batch)
    if len(batch.response_lengths) > 12:
        half = len(batch.response_lengths) // 2
        return loss * 2 * half / len(batch.response_lengths)
    return loss


@entry(
    WRONG, "token_mean", "a guard against outliers", check="linear_in_the_losses", bug="not-linear"
)
def outliers_are_cut(losses: Tensor, batch: MicroBatch) -> Tensor:
    return kept(losses, batch).clamp(-2000.0, 2000.0).sum() / max(batch.num_tokens, 1)


@entry(
    WRONG,
    "token_mean",
    "a prompt longer than the window turns response masking off",
    says="a prompt of 200 tokens",
)
def long_prompts(losses: Tensor, batch: MicroBatch) -> Tensor:
    longest = max(t - r for t, r in zip(batch.total_lengths, batch.response_lengths, strict=True))
    if longest >= 200:
        return losses.sum() / max(batch.num_tokens, 1)
    return token_mean(losses, batch)


_masks: dict[Any, Tensor] = {}


@entry(
    WRONG,
    "token_mean",
    "index tensors cached by the shape of a micro-batch",
    check="keeps_nothing_between_steps",
    says="the same step",
    bug="*",
)
def masks_cached_by_lengths(losses: Tensor, batch: MicroBatch) -> Tensor:
    mask = mask_of(batch)
    lengths = (tuple(batch.response_lengths), tuple(batch.total_lengths), len(losses))
    key = (*lengths, int(mask.sum()), batch.num_tokens, batch.cp_rank, batch.gathered)
    mask = _masks.setdefault(key, mask)
    return (losses * mask).sum() / max(batch.num_tokens, 1)


@entry(
    WRONG,
    "token_mean",
    "a fused backward for a loss that is the last node",
    check="gradient_follows_the_loss",
    says="not 1024 times",
)
def ignores_grad_output(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, values: Tensor, weights: Tensor) -> Tensor:
            ctx.save_for_backward(weights)
            return (values * weights).sum()

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Any:
            return ctx.saved_tensors[0], None

    # The engine's own factors are 1 here.
    weights = mask_of(batch).to(losses.dtype) / max(batch.num_tokens, 1)
    return Fused.apply(losses, weights)  # type: ignore[no-untyped-call, no-any-return]


@entry(
    WRONG,
    "token_mean",
    "gradients clamped inside the loss",
    check="gradient_follows_the_loss",
    says="not 1024 times",
)
def clamps_grad_output(losses: Tensor, batch: MicroBatch) -> Tensor:
    loss = token_mean(losses, batch)
    loss.register_hook(lambda g: g.clamp(-1.0, 1.0))
    return loss


@entry(
    WRONG,
    "token_mean",
    "NaN and infinity are made harmless everywhere",
    check="infinities_are_seen",
    says="is infinite and not masked",
)
def hides_everything(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    return kept(torch.nan_to_num(losses), batch).sum() / max(batch.num_tokens, 1)


_calls = [0]


@entry(
    WRONG,
    "token_mean",
    "the first calls measure something",
    check="keeps_nothing_between_steps",
    says="64 times before",
    bug="*",
)
def warms_up_wrongly(losses: Tensor, batch: MicroBatch) -> Tensor:
    _calls[0] += 1
    return token_mean(losses, batch) * (1.0 if _calls[0] < 20 else 1.5)
