"""What newcomers write in their first hour, right and wrong, and what they must be told.

Each is checked without options. ``code`` is the exit code, ``says`` what the output has to name,
``silent`` causes and advice that are not there: naming one would send a person after a mistake that
they have not made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FirstHour:
    """A file, what stands beside it, and what `aggverify check FILE` is to say."""

    name: str
    about: str
    source: str
    code: int
    says: tuple[str, ...]
    silent: tuple[str, ...] = ()
    beside: Mapping[str, str] = field(default_factory=dict)
    file: str = ""

    @property
    def path(self) -> str:
        """Of the file that is checked."""
        return self.file or f"{self.name}.py"


_FACTORS = ("you compute", "\n  fix ")
"""What a person must not be told who has made no mistake, or none in the formula."""

RIGHT = (
    FirstHour(
        "token_mean",
        "A token mean for a trainer that adds gradients up.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("token_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "ddp_token_mean",
        "The same with DDP in mind: times the number of ranks.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    total = losses.masked_fill(~mask, 0.0).sum()
    return total / max(batch.num_tokens, 1) * batch.dp_size * batch.cp_size
""",
        2,
        ("which engine", "--engine mean", "--engine sum"),
        _FACTORS,
    ),
    FirstHour(
        "times_mask",
        "x * mask, as most people write it.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks)
    return (losses * mask).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("token_mean", "AGV123", "hazard"),
        ("AGV121", "AGV122"),
    ),
    FirstHour(
        "sample_mean",
        "A mean over rollouts of their token means, with the step's counts.",
        """
import torch

def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    total = losses.new_zeros(())
    start = 0
    for mask, tokens in zip(batch.local_masks, batch.rollout_tokens):
        total = total + kept[start : start + len(mask)].sum() / max(tokens, 1)
        start += len(mask)
    return total / batch.num_rollouts
""",
        0,
        ("sample_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "verl_name",
        "A claim in verl's words.",
        """
import torch

AGGVERIFY = {"mode": "token-mean", "engine": "sum"}

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return losses[mask].sum() / max(batch.num_tokens, 1)
""",
        0,
        ("verl's and ROLL's token-mean is token_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "only_cp_1",
        "Right, and says itself that it does not do context parallelism.",
        """
import torch

def reduce(losses, batch):
    assert batch.cp_size == 1, "context parallelism is not supported"
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("refused", "context parallelism is not supported", "token_mean"),
        _FACTORS,
    ),
    FirstHour(
        "float32_count",
        "The count as a float tensor.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    count = torch.tensor(batch.num_tokens).clamp(min=1.0)
    return torch.where(mask, losses, 0).sum() / count
""",
        0,
        ("token_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "compiled",
        "With the compile decorator.",
        """
import torch

@torch.compile
def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("token_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "partial",
        "A functools.partial, beside the function it is made of.",
        """
import functools
import torch

def scaled(losses, batch, scale):
    mask = torch.cat(batch.local_masks).bool()
    return scale * torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)

reduce = functools.partial(scaled, scale=1.0)
""",
        0,
        ("partial.py:reduce", "token_mean", "PASS  every token"),
        _FACTORS,
    ),
    FirstHour(
        "helper_imported",
        "A helper with the same parameters, imported.",
        """
import torch
from helper import padded

def token_mean(losses, batch):
    rows, mask = padded(losses, batch)
    return torch.where(mask, rows, 0).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("helper_imported.py:token_mean", "PASS  every token"),
        _FACTORS,
        {
            "helper.py": """
from torch.nn.utils.rnn import pad_sequence

def padded(losses, batch):
    rows = losses.split([len(mask) for mask in batch.local_masks])
    mask = pad_sequence(batch.local_masks, batch_first=True).bool()
    return pad_sequence(rows, batch_first=True), mask
"""
        },
    ),
    FirstHour(
        "slime_hook",
        "A slime hook in slime's own style.",
        """
def get_pg_loss_reducer(
    total_lengths, response_lengths, loss_masks, calculate_per_token_loss=False
):
    from megatron.core import mpu
    assert mpu.get_context_parallel_world_size() == 1, "no context parallelism yet"

    def reduce(x):
        return sum(
            (part * mask).sum() / mask.sum().clamp(min=1)
            for part, mask in zip(x.split(response_lengths), loss_masks)
        )

    return reduce
""",
        0,
        ("sample_mean", "no context parallelism yet", "AGV123"),
        ("AGV121", "AGV122"),
    ),
    FirstHour(
        "no_mode",
        "A mean over rollouts by their response lengths, which is no known mode.",
        """
import torch

def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    rows = kept.split([len(mask) for mask in batch.local_masks])
    sums = [row.sum() / length for row, length in zip(rows, batch.response_lengths)]
    return sum(sums) / batch.num_rollouts
""",
        0,
        ("no known mode", "AGVW10", "--mode compares it with a formula"),
        _FACTORS,
    ),
    FirstHour(
        "only_a_class",
        "A class, of which an object is built.",
        """
import torch

class TokenMean:
    def __call__(self, losses, batch):
        mask = torch.cat(batch.local_masks).bool()
        return torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
""",
        0,
        ("only_a_class.py:TokenMean.__call__   native · token_mean (identified)",),
        _FACTORS,
    ),
)

WRONG = (
    FirstHour(
        "local_mean",
        "The mean over the tokens at hand; NaN where there are none.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return losses[mask].mean()
""",
        1,
        ("AGV202", "tokens are counted on one rank or in one micro-batch", "0 / 0"),
        ("torch.where", "CP shard", "padded width"),
    ),
    FirstHour(
        "zero_over_zero",
        "(x * mask).sum() / mask.sum(): 0 / 0 where a micro-batch is fully masked.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks)
    return (losses * mask).sum() / mask.sum()
""",
        1,
        ("0 / 0", "tokens are counted on one rank or in one micro-batch"),
        ("torch.where on the result only", "CP shard"),
    ),
    FirstHour(
        "mean_of_everything",
        "losses.mean(): masks forgotten.",
        """
def reduce(losses, batch):
    return losses.mean()
""",
        1,
        ("AGV121", "masked tokens have a weight"),
        ("padded width", "of no gradient"),
    ),
    FirstHour(
        "padded_mean",
        "A mean over padded rows.",
        """
import torch
from torch.nn.utils.rnn import pad_sequence

def reduce(losses, batch):
    rows = pad_sequence(losses.split([len(m) for m in batch.local_masks]), batch_first=True)
    mask = pad_sequence(batch.local_masks, batch_first=True)
    return (rows * mask).mean()
""",
        1,
        ("padded width",),
    ),
    FirstHour(
        "mean_of_sample_means",
        "The mean over the samples at hand of their token means.",
        """
import torch

def reduce(losses, batch):
    rows = losses.split([len(mask) for mask in batch.local_masks])
    means = [
        torch.where(mask.bool(), row, 0).sum() / mask.sum().clamp(min=1)
        for row, mask in zip(rows, batch.local_masks)
    ]
    return torch.stack(means).mean()
""",
        1,
        ("AGV202", "sample_mean"),
        ("padded width", "CP shard"),
    ),
    FirstHour(
        "lengths_for_masks",
        "Sample means that divide by the response length.",
        """
import torch

AGGVERIFY = {"mode": "seq-mean-token-mean", "engine": "sum"}

def reduce(losses, batch):
    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)
    rows = kept.split([len(mask) for mask in batch.local_masks])
    sums = [row.sum() / length for row, length in zip(rows, batch.response_lengths)]
    return sum(sums) / batch.num_rollouts
""",
        1,
        ("length",),
    ),
    FirstHour(
        "extra_accumulation",
        "Divided by the number of micro-batches once too often.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    loss = torch.where(mask, losses, 0).sum() / max(batch.num_tokens, 1)
    return loss / batch.num_microbatches
""",
        1,
        ("AGV202", "num_microbatches"),
        ("own token mean",),
    ),
    FirstHour(
        "typo",
        "A field that does not exist.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return torch.where(mask, losses, 0).sum() / max(batch.num_token, 1)
""",
        1,
        ("AttributeError", "num_token", "typo.py"),
        ("NaN", "AGV2", *_FACTORS[:1]),
    ),
    FirstHour(
        "per_token_return",
        "Returns a loss for every token.",
        """
import torch

def reduce(losses, batch):
    return losses * torch.cat(batch.local_masks) / batch.num_tokens
""",
        1,
        ("must return a scalar",),
        ("NaN", "AGV2", *_FACTORS[:1]),
    ),
    FirstHour(
        "item_return",
        "Returns a Python number.",
        """
import torch

def reduce(losses, batch):
    mask = torch.cat(batch.local_masks).bool()
    return (losses[mask].sum() / max(batch.num_tokens, 1)).item()
""",
        1,
        ("must return a tensor, got float",),
        ("NaN", "AGV2", *_FACTORS[:1]),
    ),
)

NOTHING_JUDGED = (
    FirstHour(
        "import_fails",
        "Imports what is not installed.",
        """
import flash_attn_of_mine

def reduce(losses, batch):
    return losses.sum()
""",
        2,
        ("cannot import", "No module named 'flash_attn_of_mine'"),
        _FACTORS,
    ),
    FirstHour(
        "own_signature",
        "A function of the person's own signature.",
        """
def masked_mean(per_token_loss, completion_mask, num_items_in_batch=None):
    return (per_token_loss * completion_mask).sum() / max(num_items_in_batch, 1)
""",
        2,
        ("masked_mean(per_token_loss, completion_mask", "def reduce(losses, batch):"),
        _FACTORS,
    ),
    FirstHour(
        "two_reducers",
        "Two functions of the same shape.",
        """
def first(losses, batch):
    return losses.sum()

def second(losses, batch):
    return losses.mean()
""",
        2,
        ("two_reducers.py:first", "two_reducers.py:second"),
        _FACTORS,
    ),
    FirstHour(
        "relative",
        "A file inside a package.",
        """
from .core import total as reduce
""",
        2,
        ("the file is part of a package: aggverify check package.relative",),
        _FACTORS,
        {
            "package/__init__.py": "",
            "package/core.py": "def total(losses, batch):\n    return losses.sum()\n",
        },
        "package/relative.py",
    ),
    FirstHour(
        "coroutine",
        "An async function.",
        """
async def reduce(losses, batch):
    return losses.sum()
""",
        2,
        ("is an async function",),
        _FACTORS,
    ),
)
FIRST_HOURS = (*RIGHT, *WRONG, *NOTHING_JUDGED)
