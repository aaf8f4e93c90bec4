"""accelerate's loop over DeepSpeed ZeRO 2, which divides by K: ``accelerate_deepspeed.py WAY``."""

from __future__ import annotations

import sys

import torch
from accelerate import Accelerator, DeepSpeedPlugin
from torch import nn
from torch.utils.data import DataLoader

import aggverify
from tests.audit.loops import LENGTHS, WIDTH, WORLD, K, Model

torch.set_num_threads(1)
torch.manual_seed(0)
plugin = DeepSpeedPlugin(zero_stage=2, gradient_accumulation_steps=K, gradient_clipping=None)
plugin.deepspeed_config["train_micro_batch_size_per_gpu"] = 2
plugin.deepspeed_config["zero_force_ds_cpu_optimizer"] = False
# Without it accelerate takes a step after each micro-batch, whatever the plugin says.
told = {} if sys.argv[1] == "steps too early" else {"gradient_accumulation_steps": K}
accelerator = Accelerator(cpu=True, deepspeed_plugin=plugin, **told)
model: nn.Module = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = DataLoader(torch.zeros(64, 1), batch_size=2)  # type: ignore[arg-type]
model, optimizer, _ = accelerator.prepare(model, optimizer, data)
rank = accelerator.process_index
for step, lengths in enumerate(LENGTHS):
    tokens = sum(map(sum, lengths))
    for k in range(K):
        cell = rank * K + k
        with accelerator.accumulate(model):
            mask = torch.tensor([[t < n for t in range(WIDTH)] for n in lengths[cell]])
            losses = model(torch.randint(0, 17, (2, WIDTH)))
            ids = [step * 100 + cell * 2 + n for n in range(2)]
            losses = aggverify.probe(losses, mask, sample_ids=ids)
            loss = torch.where(mask, losses, 0.0).sum() / tokens * WORLD
            # DeepSpeed divides by K: who does not know trains with 1/K of the learning rate.
            accelerator.backward(loss if sys.argv[1] == "forgets K" else loss * K)
            optimizer.step()
            optimizer.zero_grad()
