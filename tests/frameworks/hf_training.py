"""One update of the released Trainer itself, on gloo: every trainer that is named trains a model
with one parameter a label, and rank 0 prints what each label has weighed.

``torchrun --nproc-per-node 2 -m tests.frameworks.hf_training NAME ...``
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import TrainingArguments

from tests.frameworks import hf_trainers

MASKS = ((1,), (1, 1), (1, 0, 1, 1), (1, 1, 1, 1, 1))
"""Of the labels of each row, the prompt of one token apart."""
WIDTH = 1 + max(map(len, MASKS))
FAR = 48.0


class Model(nn.Module):
    """As those of transformers: the loss is its own, and it takes the number of items."""

    loss_type = "ForCausalLM"

    def __init__(self) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.zeros(len(MASKS), WIDTH, dtype=torch.float64))
        self.seen: list[list[int]] = []

    def forward(
        self, input_ids: Tensor, labels: Tensor | None = None, **others: Any
    ) -> dict[str, Tensor]:
        self.seen.append(input_ids[:, 0].tolist())
        far = -FAR - self.theta[input_ids[:, 0]]
        outputs = Outputs(logits=torch.stack((torch.zeros_like(far), far), -1))
        if labels is not None:
            items = others.get("num_items_in_batch")
            loss = hf_trainers.cross_entropy(outputs, labels, "mean" if items is None else "sum")
            outputs = Outputs(loss=loss if items is None else loss / items, logits=outputs.logits)
        return outputs


class Outputs(dict[str, Tensor]):
    __getattr__ = dict.__getitem__


def rows() -> list[dict[str, list[int]]]:
    found = []
    for n, mask in enumerate(MASKS):
        labels = [-100, *(1 if bit else -100 for bit in mask)]
        labels += [-100] * (WIDTH - len(labels))
        ids = [n] * WIDTH
        found.append({"input_ids": ids, "attention_mask": [1] * WIDTH, "labels": labels})
    return found


def trained(name: str, folder: str) -> dict[str, Any]:
    kind, how = getattr(hf_trainers, name), {}
    if not isinstance(kind, type):
        kind, how = hf_trainers.Base, {"compute_loss_func": kind}
    args = TrainingArguments(
        output_dir=folder,
        use_cpu=True,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=2,
        max_steps=1,
        learning_rate=1.0,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        remove_unused_columns=False,
        label_names=["labels"],
    )
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    trainer = kind(
        model=model, args=args, train_dataset=rows(), optimizers=(optimizer, None), **how
    )
    trainer.train()
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, model.seen)
    return {"ranks": every, "weights": (-model.theta.detach()).tolist()}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as where:
        done = {name: trained(name, where) for name in sys.argv[1:]}
    if not dist.get_rank():
        print(f"TRAINED {json.dumps(done)}")
