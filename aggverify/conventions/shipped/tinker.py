"""A custom loss function of Tinker, ``loss_fn(data, logprobs)``.

It is called once for all data of ``forward_backward_custom``. A datum is a whole sequence whose
mask is its ``weights``; log-probabilities are minus the losses.
"""

from typing import Any

import torch

from aggverify.conventions.stand_ins import StandIn, StandInDict

ADAPTER = {
    "title": "Tinker, custom loss function",
    "function": "loss_fn",
    "parameters": ["data", "logprobs"],
    "named": True,
    "engine": "sum",
    "rows": "packed",
    "logs": "unmerged",
    "not_claimed": {
        "data-parallel": "a custom loss is called once for all data of forward_backward_custom",
        "micro-batches": "a custom loss is called once for all data of forward_backward_custom",
        "context-parallel": "a datum is whole",
        "contiguous": "a datum is whole",
        "gathered": "a datum is whole",
        "rejection": "the weights are taken as final",
    },
    "notes": [
        "--claim micro-batches: several calls before optim_step, whose gradients are added up",
        "clipping, importance ratios and KL in loss_fn are not exercised",
    ],
    "run_against": [["tinker", "0.38.0", "2026-11-27"]],
}


class TensorData:
    """Numbers with a shape, as Tinker's; where a tensor is wanted, a tensor."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.dtype = "float32" if tensor.is_floating_point() else "int64"
        self.shape = [*tensor.shape]

    @property
    def data(self) -> list[Any]:
        found: list[Any] = self._tensor.flatten().tolist()
        return found

    def to_torch(self) -> Any:
        return self._tensor.clone()

    def to_numpy(self) -> Any:
        return self._tensor.numpy()

    def tolist(self) -> list[Any]:
        found: list[Any] = self._tensor.tolist()
        return found

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = [one._tensor if isinstance(one, cls) else one for one in args]
        return function(*given, **(kwargs or {}))


def datum(mask: Any, dtype: Any) -> Any:
    tokens = torch.arange(1, len(mask) + 1)
    given = {"weights": mask.to(dtype), "mask": mask, "target_tokens": tokens}
    text = StandIn(length=len(mask), to_ints=tokens.tolist)
    inputs = StandInDict({name: TensorData(values) for name, values in given.items()})
    return StandIn(model_input=text, loss_fn_inputs=inputs)


def call(loss_fn: Any, losses: Any, batch: Any) -> Any:
    lengths = batch.cu_seqlens.diff().tolist()
    data = [datum(mask, losses.dtype) for mask in batch.mask.split(lengths)]
    return loss_fn(data, [*(-losses).split(lengths)])  # and metrics, which are returned as they are
