"""SkyRL's FSDP worker as the server of the Tinker API calls it, on a stand-in.

It has a loss by its name, for the rows of a micro-batch; a client has normalised its weights or
advantages.
"""

import sys
from functools import partial
from typing import Any
from unittest.mock import patch

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "SkyRL's losses of the Tinker API, in its FSDP worker",
    "function": "PolicyWorkerBase.forward_backward",
    "parameters": ["self", "data", "loss_fn", "loss_fn_config"],
    "named": True,
    "run_against": [
        ["skyrl", "0.4.0", "2026-11-27"],
        ["skyrl", "0.3.0", "2026-11-27"],
    ],
    "engine": "mean",
    "rows": "padded",
    "modes": {
        "token_sum": "cross_entropy",
        "token_mean": "importance_sampling",
        "sequence_sum": "regular",
    },
    "not_claimed": {
        "context-parallel": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "contiguous": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "gathered": "SkyRL gathers log-probs before its loss; no CP shard is reduced",
        "fan-out": "a row is a datum",
        "rejection": "the weights are taken as final",
        "poison": "its losses multiply by the mask, and its trainer passes finite ones",
    },
    "notes": [
        "each mode is one of its losses, normalised by a client: cross_entropy with weights 1, "
        "importance_sampling with advantages over the step's tokens, ppo over its rows",
        "ratios are 1 and advantages stand for minus losses: clips are not exercised",
    ],
}


class Data(StandInDict):
    """A rank's rows, which are one micro-batch."""

    batch_size = 0
    metadata: Any = None

    def chunk(self, size: int) -> list[Any]:
        return [self]


def call(forward_backward: Any, losses: Any, batch: Any) -> Any:
    units = {"importance_sampling": batch.num_tokens, "regular": batch.num_rollouts}
    zeros, handed, mask = torch.zeros_like(losses.detach()), list[Any](), batch.mask
    log_probs = -losses if batch.mode == "cross_entropy" else zeros

    def model(*given: Any, **how: Any) -> Any:
        return log_probs, {"entropy": torch.nn.functional.pad(zeros, (0, 1))}

    model.train = lambda: None  # type: ignore[attr-defined]
    algorithm = StandIn(
        policy_loss_type="regular",
        temperature=1.0,
        **dict.fromkeys(("use_kl_loss", "use_entropy_loss"), False),
        **dict.fromkeys(("kl_loss_coef", "entropy_loss_coef"), 0.0),
        **dict.fromkeys(("eps_clip_low", "eps_clip_high"), 0.2),
        off_policy_correction=None,
        enable_sample_support_replay=False,
    )
    sizes = {"micro_train_batch_size_per_gpu": len(losses), "max_tokens_per_microbatch": 0}
    worker = StandIn(
        model=model,
        cfg=StandIn(algorithm=algorithm, **sizes),
        mesh_rank=StandIn(dp_size=batch.dp_size),
        device_mesh=StandIn(get_group=lambda name: None),
        strategy=StandIn(
            backward=lambda loss, *others: handed.append(loss),
            all_reduce=lambda metrics, **how: metrics,
        ),
        scheduler=StandIn(get_last_lr=lambda: [0.0]),
        optimizer=None,
    )
    own = sys.modules[forward_backward.__module__].PolicyWorkerBase
    worker._forward_backward_micro = partial(own._forward_backward_micro, worker)
    data = Data(
        sequences=mask,
        attention_mask=mask,
        response_mask=torch.ones_like(mask),
        loss_mask=mask.to(losses.dtype),
        action_log_probs=zeros,
        advantages=-losses / max(units.get(batch.mode, 1), 1),
    )
    data.batch_size, data.metadata = len(losses), {"response_length": losses.shape[-1]}
    with patch("torch.cuda.current_device", lambda: losses.device):
        forward_backward(worker, data, loss_fn=batch.mode)
    return handed[0]
