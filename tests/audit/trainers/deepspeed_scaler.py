"""DeepSpeed's own loss scaler, whose fp16 few processors have: ``deepspeed_scaler.py FACTOR``.

As its optimizers do: scale before backward, divide gradients by it, or leave the step out.
"""

from __future__ import annotations

import sys

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler

import aggverify

deepspeed.init_distributed("gloo")
rank = dist.get_rank()
theta = torch.nn.Parameter(torch.zeros(3))
optimizer = torch.optim.SGD([theta], lr=0.1)
scaler = DynamicLossScaler(2.0**10, 1, 1.0, 1, False)
for step in range(4):
    ids = [step * 10 + rank]
    losses = aggverify.probe(theta + 1, torch.ones(3), sample_ids=ids, lengths=[3])
    scaler.scale_loss(losses.sum() / 6 * float(sys.argv[1])).backward()
    assert theta.grad is not None
    dist.all_reduce(theta.grad)
    overflow = step == 2
    if not overflow:
        theta.grad /= scaler.loss_scale
        optimizer.step()
    optimizer.zero_grad()
    scaler.update_scale(overflow)
