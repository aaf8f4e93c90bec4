"""One right reducer by every road to a collective: the step's tokens are counted over its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aggverify.conventions import MicroBatch
from tests.corpus.parts import kept

if TYPE_CHECKING:
    from torch import Tensor

ROADS = (
    "c10d",
    "waited_for",
    "differentiable",
    "functional",
    "operator_by_group_name",
    "of_objects",
    "method_of_the_group",
    "dtensor",
    "device_mesh",
)


def _mine(batch: MicroBatch) -> Tensor:
    import torch

    return torch.cat(batch.loss_masks).sum().double()


def _mean(losses: Tensor, batch: MicroBatch, count: Any) -> Tensor:
    return kept(losses, batch).sum() / max(float(count), 1.0)


def c10d(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    count = _mine(batch)
    dist.all_reduce(count, group=batch.dp_group)
    return _mean(losses, batch, count)


def waited_for(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    count = _mine(batch)
    work: Any = dist.all_reduce(count, group=batch.dp_group, async_op=True)
    work.wait()
    return _mean(losses, batch, count)


def differentiable(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed.nn as nn

    return _mean(losses, batch, nn.all_reduce(_mine(batch), group=batch.dp_group))


def functional(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed._functional_collectives as funcol

    return _mean(losses, batch, funcol.all_reduce(_mine(batch), "sum", batch.dp_group))


def operator_by_group_name(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch

    group: Any = batch.dp_group
    ops: Any = torch.ops._c10d_functional
    count = ops.wait_tensor(ops.all_reduce(_mine(batch), "sum", group.group_name))
    return _mean(losses, batch, count)


def of_objects(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed as dist

    counts: list[Any] = [None] * batch.dp_size
    dist.all_gather_object(counts, float(_mine(batch)), group=batch.dp_group)
    return _mean(losses, batch, sum(counts))


def method_of_the_group(losses: Tensor, batch: MicroBatch) -> Tensor:
    group: Any = batch.dp_group
    count = _mine(batch)
    group.allreduce([count]).wait()
    return _mean(losses, batch, count)


def dtensor(losses: Tensor, batch: MicroBatch) -> Tensor:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    group: Any = batch.dp_group
    mesh = DeviceMesh.from_group(group, "cpu")
    count = DTensor.from_local(_mine(batch), mesh, [Partial()])
    return _mean(losses, batch, count.redistribute(mesh, [Replicate()]).to_local())


def device_mesh(losses: Tensor, batch: MicroBatch) -> Tensor:
    import torch.distributed._functional_collectives as funcol
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (batch.dp_size,))
    return _mean(losses, batch, funcol.all_reduce(_mine(batch), "sum", (mesh, 0)))
