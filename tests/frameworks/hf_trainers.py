"""Losses as Hugging Face's Trainer takes them, right ones and some with a mistake: of the released
Trainer where AGGVERIFY_TRANSFORMERS is the folder that it lies in, else of a class that does what
its ``compute_loss`` does."""

from __future__ import annotations

import os
import sys
from typing import Any

from torch.nn import functional

from tests.frameworks.twins import twin, wrong

Base: Any
if folder := os.environ.get("AGGVERIFY_TRANSFORMERS"):
    sys.path.insert(0, folder)
    from transformers import Trainer as Base
else:

    class Base:  # type: ignore[no-redef]
        def compute_loss(
            self: Any,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,
        ) -> Any:
            if self.model_accepts_loss_kwargs:
                inputs = {**inputs, "num_items_in_batch": num_items_in_batch}
            outputs = model(**inputs)
            loss = outputs["loss"] if isinstance(outputs, dict) else outputs[0]
            if self.args.average_tokens_across_devices and num_items_in_batch is not None:
                loss *= self.accelerator.num_processes
            return (loss, outputs) if return_outputs else loss


def cross_entropy(outputs: Any, labels: Any, reduction: str = "sum") -> Any:
    logits = outputs.logits[:, :-1].flatten(0, 1)
    return functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction=reduction)


class Inherits(Base):
    pass


class AsksAbove(Base):
    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self.log({"own": loss.item()})
        return (loss, outputs) if return_outputs else loss


class OwnLoss(Base):
    def compute_loss(
        self: Any,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = cross_entropy(outputs, labels) / num_items_in_batch
        if not wrong("hf-trainer"):  # the mean over ranks is not undone
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss


class WithoutProcesses(Base):
    """Right only with average_tokens_across_devices=False, or on one rank."""

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        outputs = model(**inputs)
        loss = cross_entropy(outputs, inputs["labels"]) / num_items_in_batch
        return (loss, outputs) if return_outputs else loss


class SumOfMeans(Base):
    """transformers #34191, where the Trainer divides by no accumulation steps any more."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        outputs = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"])
        loss = cross_entropy(outputs, inputs["labels"], "mean")
        return (loss, outputs) if return_outputs else loss


class MeanOfMeans(SumOfMeans):
    """The same where it does."""

    loss_is_scaled_for_ga = False


class ReadsItsOwn(Base):
    def compute_loss(
        self: Any, model: Any, inputs: Any, return_outputs: bool = False, **kwargs: Any
    ) -> Any:
        return self.alpha * super().compute_loss(model, inputs, return_outputs, **kwargs)


made = object.__new__(ReadsItsOwn)  # without the released one's constructor
made.alpha = 3.0


class GivesItsOwn(ReadsItsOwn):
    alpha = 1.0


def hf_loss_func(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
    """As ``compute_loss_func``."""
    return cross_entropy(outputs, labels) / (1 if wrong("hf-loss-func") else num_items_in_batch)


hf_compute_loss = OwnLoss.compute_loss
wrong_hf_trainer = twin("hf-trainer", hf_compute_loss)
wrong_hf_loss_func = twin("hf-loss-func", hf_loss_func)
