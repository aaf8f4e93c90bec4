"""Hugging Face's ``Trainer.compute_loss``, of a class or alone, on a stand-in for the trainer.

Every label has a logit so far below the other one that its cross entropy is linear: its gradient is
exactly -1 in every dtype, and so a token's weight.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "Hugging Face's Trainer.compute_loss",
    "function": "compute_loss",
    "parameters": ["self", "model", "inputs", "return_outputs"],
    "of_a_class": True,
    "run_against": [["transformers", "5.24.0", "2026-11-26"]],
    "fixed": ["return_outputs"],
    "engine": "mean",
    "rows": "whole",
    "only": ["token_mean", "sample_mean", "constant", "sequence_sum", "token_mean_legacy"],
    "never": {"prompt_mean": "it is given no prompt groups"},
    "not_claimed": {
        "context-parallel": "rows are whole",
        "contiguous": "rows are whole",
        "gathered": "rows are whole",
        "ragged-micro-batches": "per_device_train_batch_size rows in every micro-batch",
        "dummy-samples": "per_device_train_batch_size rows in every micro-batch",
        "fan-out": "a row is a rollout",
        "rejection": "the labels are taken as final",
        "empty-steps": "num_items_in_batch is 0, and the Trainer's own loss 0 / 0",
        "poison": "a logit that is not finite has no finite gradient, behind a label of -100 too",
        "loss-function": "every cross entropy is near 48, so the reported loss is not judged",
    },
    "unread": "what __init__ sets: make it a class attribute, or check an object of the class",
    "notes": [
        "run as transformers 5 trains: the model accepts num_items_in_batch, counted over the "
        "accumulation steps and all ranks (average_tokens_across_devices, the default)",
        "every label has a probability near 0: label smoothing, focal factors and z-loss are not "
        "exercised",
    ],
}
FAR = 48.0
"""exp(-48) is lost when added to 1 in float64, and no 0 in float32."""
_IGNORED = -100


class Outputs(StandInDict):
    """By key, attribute and place, without what is None, as transformers' ModelOutput."""

    def __getattr__(self, name: str) -> Any:
        if name not in self and name != "loss":
            raise AttributeError(f"no output {name!r}", name=name, obj=self)
        return self.get(name)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) if isinstance(key, str) else tuple(self.values())[key]


class Model(StandIn):
    """A causal language model with a vocabulary of two, of which all labels are the second."""

    def __call__(
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        labels: Any = None,
        num_items_in_batch: Any = None,
        **others: Any,
    ) -> Outputs:
        if input_ids is None or input_ids.shape != self.losses.shape:
            raise ValueError(f"the model is called with the micro-batch's {self.losses.shape} ids")
        fixed = self.losses.detach()
        far = (fixed - self.losses) - (FAR + fixed.abs() % 8)
        label = torch.where(fixed.isfinite(), far, -self.losses)
        logits = torch.stack((torch.zeros_like(label), label), -1)
        if labels is None:
            return Outputs(logits=logits)
        following = torch.nn.functional.pad(labels, (0, 1), value=_IGNORED)[:, 1:].flatten()
        how = "mean" if num_items_in_batch is None else "sum"
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), following, reduction=how)
        return Outputs(loss=loss if how == "mean" else loss / num_items_in_batch, logits=logits)


def model_and_inputs(losses: Any, batch: Any) -> tuple[Model, StandInDict]:
    """Make the model: a logit predicts the token after it, that of the last one none."""
    lengths = batch.cu_seqlens.diff().tolist()
    present = torch.zeros_like(losses.detach(), dtype=torch.int64)
    for row, length in zip(present, lengths, strict=True):
        row[:length] = 1
    labels = torch.where(batch.mask.bool(), 1, _IGNORED).roll(1, -1)
    config = StandIn(vocab_size=2, pad_token_id=0, is_encoder_decoder=False, use_cache=False)
    model = Model(losses=losses, config=config, training=True, device=losses.device)
    return model, StandInDict(input_ids=present, attention_mask=present.clone(), labels=labels)


def num_items_in_batch(batch: Any, device: Any) -> Any:
    """As a float: the Trainer divides it by the sizes of tensor and context parallelism, here 1."""
    return torch.tensor(batch.num_tokens, device=device) / 1


def in_our_losses(loss: Any, losses: Any) -> Any:
    """Return the loss with the same gradient, and the value that its weights make of our losses."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.requires_grad:
        return loss
    (weights,) = torch.autograd.grad(loss.reshape(()), losses, allow_unused=True)
    if weights is None:
        return loss
    return (weights.double() * torch.where(weights != 0, losses, 0).double()).sum()


def _attributes(model: Model, batch: Any) -> Iterator[tuple[str, Any]]:
    device, world = model.device, batch.dp_size * batch.cp_size

    def gather(tensor: Any) -> Any:
        every = [torch.empty_like(own := tensor.reshape(-1)) for _ in range(world)]
        dist.all_gather(every, own, group=batch.dp_cp_group)
        return torch.cat(every)

    def reduce(tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        dist.all_reduce(done := tensor.clone(), group=batch.dp_cp_group)
        return done / world * scale if reduction == "mean" else done

    place = {"num_processes": world, "process_index": batch.dp_rank, "device": device}
    first = {"is_main_process": not batch.dp_rank, "is_local_main_process": not batch.dp_rank}
    calls = {"gather": gather, "reduce": reduce, "unwrap_model": lambda model, *args, **how: model}
    yield "accelerator", StandIn(**place, **first, **calls, local_process_index=batch.dp_rank)
    yield (
        "args",
        StandIn(
            n_gpu=1,
            world_size=world,
            process_index=batch.dp_rank,
            local_rank=batch.dp_rank,
            device=device,
            average_tokens_across_devices=True,
            gradient_accumulation_steps=batch.num_microbatches,
            per_device_train_batch_size=len(batch.samples),
            train_batch_size=len(batch.samples),
            label_smoothing_factor=0.0,
            past_index=-1,
        ),
    )
    yield "state", StandIn(global_step=1, epoch=0.0, max_steps=1000, is_world_process_zero=True)
    yield "current_gradient_accumulation_steps", batch.num_microbatches
    yield "log", lambda *args, **how: None
    yield from dict.fromkeys(("model", "model_wrapped"), model).items()
    yield from dict.fromkeys(("compute_loss_func", "label_smoother"), None).items()
    yield from dict.fromkeys(("is_deepspeed_enabled", "is_fsdp_enabled"), False).items()
    yield from dict.fromkeys(("processing_class", "tokenizer"), StandIn(pad_token_id=0)).items()


def call(compute_loss: Any, losses: Any, batch: Any) -> Any:
    model, inputs = model_and_inputs(losses, batch)
    trainer: Any = StandIn()
    given = inspect.unwrap(compute_loss)
    if not inspect.isfunction(given):  # a class, or an object with what its __init__ has set
        kind = compute_loss if isinstance(compute_loss, type) else type(given)
        made: Any = type(kind.__name__, (kind,), {"__module__": __name__})
        trainer, compute_loss = object.__new__(made), made.compute_loss
        vars(trainer).update({} if isinstance(given, type) else vars(given))
    vars(trainer).update(_attributes(model, batch))
    accepts = getattr(trainer, "model_accepts_loss_kwargs", True)
    trainer.model_accepts_loss_kwargs = accepts
    items = num_items_in_batch(batch, losses.device) if accepts else None
    loss = compute_loss(trainer, model, inputs, num_items_in_batch=items)
    scaled = getattr(trainer, "loss_is_scaled_for_ga", None)
    if isinstance(loss, torch.Tensor) and not (accepts if scaled is None else scaled):
        loss = loss / batch.num_microbatches  # as Trainer.training_step does
    return in_our_losses(loss, losses)
