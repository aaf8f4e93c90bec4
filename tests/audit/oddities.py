"""A process whose steps are odd in every way that a recorder must not mind: run by test_probe."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

import aggverify

assert "aggverify.audit.recorder" not in sys.modules
weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
optimizer = torch.optim.SGD([weight], lr=0.0)
rows = torch.ones(2, 3, dtype=torch.float64)
mask = torch.tensor([[1, 1, 0], [1, 0, 0]])


def losses(**known: Any) -> torch.Tensor:
    """What a probe returns of two samples with 2 and 1 tokens, masked."""
    return aggverify.probe(rows * weight, mask, **known) * mask


def stepped(loss: torch.Tensor) -> None:
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def scaled(extra: torch.Tensor, **known: Any) -> None:
    """The scaler's method is looked up before the probe in its argument is called."""
    scaler.scale(losses(**known).sum() / 3 + extra).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()


# 0: a scaled loss, whose scaler no probe has seen yet; without gradients nothing is left.
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1)
scaled(torch.zeros(()), sample_ids=["a", "b"], group_ids=torch.tensor([7, 7]))
with torch.no_grad():
    losses()
# 1, 2: checkpoints of both kinds, whose forward pass runs twice.
for reentrant in (False, True):
    out = checkpoint(
        lambda w: aggverify.probe(rows * w, mask) * mask, weight, use_reentrant=reentrant
    )
    stepped(out.sum() / 3)
# 3: a scaled loss; 4: a step that the scaler leaves out because a gradient is infinite.
scaled(torch.zeros(()))
scaled((weight * float("inf")).sum())
# 5: two backward passes through one graph add up; 6: a micro-batch that nothing goes back through.
total = losses().sum() / 6
total.backward(retain_graph=True)
stepped(total)
losses()
stepped(losses().sum() / 3)
# 7: log-probabilities, one sample of advantage 0; 8: logits.
log_probs = aggverify.probe_log_probs(rows * weight, torch.tensor([2.0, 0.0]), mask)
stepped(-(log_probs * mask * torch.tensor([[2.0], [0.0]])).sum() / 3)
# 8, 9: numbered by the trainer.
stepped(losses(step=8).sum() / 3)
stepped(losses(step=9, name="kl").sum() / 3)
