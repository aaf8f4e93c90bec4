"""Engines that were trained with, and break the contract that Megatron's reducers rely on."""

from __future__ import annotations

from dataclasses import replace

from aggverify.engines.emulated import EmulatedEngine, over, times
from aggverify.engines.mean import MEAN
from aggverify.engines.megatron import MEGATRON_SAMPLE, MEGATRON_TOKEN
from aggverify.engines.spec import Deviation

_PER_TOKEN = "loss_func returns (loss, num_tokens, logs)"

PHANTOM_TOKEN = replace(
    MEGATRON_TOKEN,
    name="megatron-token-phantom",
    title="slime per token: trainer f * C, DDP sum, / all-reduced sum of max(tokens of a sample, "
    "1): update = sum grad f / (tokens + samples without any)",
    trainers="slime on Megatron-LM under calculate_per_token_loss since #365, miles likewise",
    does="divides by the step's number of tokens and one more for every sample that has none, as "
    "slime does per token",
    required="(tokens of the step + samples without any) * sum(w*l) over its own tokens; a count "
    "that it returns is not looked at",
    phantom_tokens=True,
    guessed=False,
    deviates=Deviation(
        ("megatron-token",),
        "counts one token for every sample that has none",
        "slime since #365, miles #2796",
        "count masks.sum() without a floor, and let Megatron's clamp guard the division; or "
        "declare it: --policy phantom_tokens=yes",
    ),
)
COUNT_DROPPED = EmulatedEngine(
    name="miles-fsdp",
    title="a backend that drops the returned count: trainer f * C, mean over D*C ranks: "
    "update = 1/D * sum grad f",
    trainers="miles on FSDP under calculate_per_token_loss: " + _PER_TOKEN,
    does="never divides by the count that is returned, and averages gradients over ranks, as miles "
    "on FSDP does",
    required="D * sum(w*l) over its own tokens",
    roundings=2,
    scale=(times("cp_size"),),
    before_reduction=MEAN.before_reduction,
    guessed=False,
    deviates=Deviation(
        ("megatron-token", "megatron-token-raw"),
        "never divides by the count that is returned, and averages over ranks",
        "miles #3231: the reported metric looks right",
        "divide gradients by the all-reduced count, and sum them over ranks, as Megatron does",
    ),
)
_INSTEAD = "divides every micro-batch's loss by its own count, then by K, and averages over ranks"
_PER_TOKEN_FLAG = "train with --calculate-per-token-loss: one division, by the step's count"

THREE_OUTPUT = EmulatedEngine(
    name="megatron-three-output",
    title="Megatron's three-output default: schedule / max(num_tokens, 1) / K, mean over D*C ranks:"
    " update = 1/(K*D*C) * sum grad f / n, n the micro-batch's count",
    trainers="Megatron-LM without calculate_per_token_loss: " + _PER_TOKEN,
    does="averages the means of micro-batches over their own tokens, as Megatron does without "
    "--calculate-per-token-loss",
    required="(count that it returns) * K*D*C * sum(w*l) over its own tokens",
    roundings=4,
    scale=(over("num_microbatches"),),
    before_reduction=MEGATRON_SAMPLE.before_reduction,
    averaged=True,
    guessed=False,
    deviates=Deviation(
        ("megatron-token-raw", "megatron-token"),
        _INSTEAD,
        "Megatron-LM's default (#7513)",
        _PER_TOKEN_FLAG,
    ),
)
THREE_OUTPUT_CP = replace(
    THREE_OUTPUT,
    name="megatron-three-output-cp",
    title="Megatron's three-output default of spring 2025: schedule / max(num_tokens, 1) * C / K, "
    "mean over D*C ranks: update = 1/(K*D) * sum grad f / n, n the micro-batch's count",
    trainers="Megatron-LM of March and April 2025 without calculate_per_token_loss: " + _PER_TOKEN,
    does="averages the means of micro-batches over their own tokens, times cp_size, as Megatron "
    "did in spring 2025",
    required="(count that it returns) * K*D * sum(w*l) over its own tokens",
    roundings=5,
    scale=(times("cp_size"), over("num_microbatches")),
    deviates=Deviation(
        ("megatron-token-raw", "megatron-token"),
        f"multiplies by cp_size and {_INSTEAD}",
        "Megatron-LM between March and April 2025",
        f"take a Megatron-LM of another time, and {_PER_TOKEN_FLAG}",
    ),
)
