"""Which collectives a rank issues: kind, dtype, size, operation, group size."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

_TRACED = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "broadcast",
    "broadcast_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "all_to_all",
    "all_to_all_single",
    "gather",
    "scatter",
    "barrier",
    "send",
    "recv",
)
MAX_CALLS = 256


class Trace:
    """The calls of the current job: (ranks of the group, text that is equal on all of them)."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._depth = 0

    def clear(self) -> None:
        """Forget the calls of the job before."""
        self.calls = []

    @staticmethod
    def installed() -> Trace:
        """Wrap torch.distributed's functions in this process and return the record."""
        import torch.distributed as dist

        trace = Trace()
        for name in _TRACED:
            wrapped = trace._wrap(name, getattr(dist, name))
            setattr(dist, name, wrapped)
            setattr(dist.distributed_c10d, name, wrapped)
        return trace

    def _wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def traced(*args: Any, **kwargs: Any) -> Any:
            # Only what the caller asked for: collectives built from others count once.
            if self._depth == 0 and len(self.calls) < MAX_CALLS:
                self.calls.append(_describe(name, args, kwargs))
            self._depth += 1
            try:
                return function(*args, **kwargs)
            finally:
                self._depth -= 1

        return traced


def _describe(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, str]:
    import torch
    import torch.distributed as dist

    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    if not tensors:
        lists = [a for a in args if isinstance(a, list)]
        tensors = [t for t in (lists[0] if lists else []) if isinstance(t, torch.Tensor)]
    shapes = ",".join(f"{t.numel()}x{str(t.dtype).removeprefix('torch.')}" for t in tensors[:4])
    operation = next(
        (str(a) for a in (*args, *kwargs.values()) if type(a).__name__ in ("RedOpType", "ReduceOp")),
        "SUM",
    )
    group = kwargs.get("group")
    if group is None:
        group = next((a for a in args if isinstance(a, dist.ProcessGroup)), None)
    ranks = ",".join(map(str, dist.get_process_group_ranks(group)))
    return ranks, f"{name}({shapes}) {operation}"
