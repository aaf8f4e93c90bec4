"""One optimizer step through a framework's own function, in one process: ``point.py NAME FOLDER``.

Two micro-batches with samples of 3 and 1, 2 and 4 tokens; the function comes out of its wheel, and
what that imports beside torch stands in, empty.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

sys.path[:0] = [str(Path(__file__).parents[2] / "frameworks"), sys.argv[2]]
standins: Any = import_module("standins")
standins.install(
    *("accelerate", "areal.api", "areal.infra", "areal.utils.data", "beartype", "cloudpathlib"),
    *("codetiming", "datasets", "deepspeed", "flash_attn", "huggingface_hub", "liger_kernel.ops"),
    *(
        "liger_kernel.chunked_loss",
        "megatron",
        "nemo_rl.distributed",
        "nemo_rl.data",
        "nemo_rl.models",
        "nemo_rl.utils",
        "mlflow",
        "wandb",
        "orjson",
    ),
    *("pandas", "peft", "pyarrow", "pylatexenc", "prime_rl.configs", "prime_rl.utils"),
    *("slime.utils", "miles.utils", "sglang", "slime.rollout", "torchdata"),
)
LENGTHS = ((3, 1), (2, 4))
TOKENS, WIDTH = 10, 4
theta = torch.nn.Parameter(torch.zeros(2, 2, WIDTH, dtype=torch.float64))
optimizer = torch.optim.SGD([theta], lr=1.0)


def module(name: str) -> Any:
    """The module itself: what its packages do when they are imported is another matter."""
    parts = name.split(".")
    for n in range(1, len(parts)):
        package = ".".join(parts[:n])
        if package not in sys.modules:
            bare: Any = ModuleType(package)
            bare.__path__ = [str(Path(sys.argv[2]).joinpath(*parts[:n]))]
            sys.modules[package] = bare
    return import_module(name)


def verl(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    core = module("verl.trainer.ppo.core_algos")

    def compute_policy_loss_of_mine() -> Any:
        return core.agg_loss(values, mask, "token-mean", batch_num_tokens=TOKENS)

    entropy = core.agg_loss(values * 3, mask, "token-mean", batch_num_tokens=TOKENS)
    return compute_policy_loss_of_mine() - 0.5 * entropy


def skyrl(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    return module("skyrl.backends.skyrl_train.utils.ppo_utils").reduce_loss(values, mask)


def openrlhf(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    loss = module("openrlhf.models.loss")

    def forward() -> Any:
        return loss.aggregate_loss(values, mask, batch_num_tokens=TOKENS)

    return forward()


def areal(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    of = module("areal.utils.functional.functional").ppo_actor_loss_fn
    old = values.detach() - 0.1
    mean, _ = of(values, old, old, torch.ones_like(old) * 2, 0.5, mask.bool())
    return mean * sum(lengths) / TOKENS


def liger(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    return module("liger_kernel.transformers.grpo_loss")._reduce_grpo_loss(
        values, mask, "grpo", WIDTH
    ) / len(LENGTHS)


def nemo(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    masked_mean = module("nemo_rl.algorithms.utils").masked_mean
    actor_loss = [masked_mean(values, mask, global_normalization_factor=TOKENS)]
    return actor_loss[0]


def flat(values: Tensor, lengths: tuple[int, ...]) -> list[Tensor]:
    return [row[:n] for row, n in zip(values, lengths, strict=True)]


def reducer(name: str) -> Callable[..., Any]:
    def of(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
        utils = module(name)
        utils.mpu = SimpleNamespace(get_context_parallel_world_size=lambda: 1)
        alone = SimpleNamespace(size=1, rank=0)
        utils.get_parallel_state = lambda: SimpleNamespace(cp=alone, cp_size=1, cp_rank=0)
        masks = [torch.ones(n, dtype=torch.float64) for n in lengths]
        mean = utils.get_sum_of_sample_mean([n + 2 for n in lengths], list(lengths), masks)
        return mean(torch.cat(flat(values, lengths))) / 4

    return of


def prime(values: Tensor, mask: Tensor, lengths: tuple[int, ...]) -> Any:
    of = module("prime_rl.trainer.rl.loss")
    rows = flat(values, lengths)
    ones = [torch.ones(n, dtype=torch.float64) for n in lengths]

    def loss_of(inputs: Any) -> Any:
        ratio = (inputs.trainer_logprobs - inputs.inference_logprobs).exp()
        kept = torch.where(inputs.loss_mask, ratio * inputs.advantages, 0.0)
        return SimpleNamespace(loss=-kept.sum(), metrics={})

    old = [row.detach() - 0.25 for row in rows]
    masks = [one.bool() for one in ones]
    given = (None, [2 * one for one in ones], masks, None, None, None)
    loss, _ = of.compute_loss(rows, old, *given, loss_of, TOKENS, 1, 1)
    return loss


CALLS = {
    "verl": verl,
    "skyrl": skyrl,
    "openrlhf": openrlhf,
    "areal": areal,
    "liger": liger,
    "nemo-rl": nemo,
    "slime": reducer("slime.backends.megatron_utils.cp_utils"),
    "miles": reducer("miles.backends.training_utils.cp_utils"),
    "prime-rl": prime,
}
for k, lengths in enumerate(LENGTHS):
    mask = torch.tensor(
        [[float(t < n) for t in range(WIDTH)] for n in lengths], dtype=torch.float64
    )
    CALLS[sys.argv[1]](1.0 * theta[k], mask, lengths).backward()
optimizer.step()
