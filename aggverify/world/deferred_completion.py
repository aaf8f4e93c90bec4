"""Asynchronous collectives that complete only when they are waited for.

Where ranks share a machine gloo is so quick that a result is mostly there without ``wait()``, which
it is not on a cluster. On demand an asynchronous collective works on a copy, and its result arrives
in the caller's tensors with ``wait()``; or it is waited for at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Outputs = tuple[int, str]
"""Place and name of the argument that the result goes to."""
_OUTPUTS: dict[str, Outputs] = {
    "all_reduce": (0, "tensor"),
    "reduce": (0, "tensor"),
    "broadcast": (0, "tensor"),
    "all_gather": (0, "tensor_list"),
    "all_gather_into_tensor": (0, "output_tensor"),
    "reduce_scatter": (0, "output"),
    "reduce_scatter_tensor": (0, "output"),
    "all_to_all": (0, "output_tensor_list"),
    "all_to_all_single": (0, "output"),
    "scatter": (0, "tensor"),
}


AT_ONCE, WAITED_FOR = "at once", "waited for"


class DeferredCompletion:
    """When asynchronous collectives complete in this rank; "" leaves that to the backend."""

    when = ""

    def set(self, when: str) -> AbstractContextManager[None]:
        """For the length of a ``with``."""
        return self._set(when) if when else nullcontext()

    @contextmanager
    def _set(self, when: str) -> Iterator[None]:
        self.when = when
        try:
            yield
        finally:
            self.when = ""


ARRIVAL = DeferredCompletion()


def issued(
    function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call a collective; an asynchronous one as this rank is set."""
    if not ARRIVAL.when or _is_collected():
        return function(*args, **kwargs)
    if ARRIVAL.when == AT_ONCE:
        work = function(*args, **kwargs)
        if work is not None and hasattr(work, "wait"):
            work.wait()
        return work
    place = _OUTPUTS.get(name)
    if place is None:
        return function(*args, **kwargs)
    at, key = place
    given: Any = args[at] if at < len(args) else kwargs.get(key)
    targets: list[Tensor] = list(given) if isinstance(given, list | tuple) else [given]
    copies = [target.detach().clone() for target in targets]
    stand_in = copies if isinstance(given, list | tuple) else copies[0]
    if at < len(args):
        work = function(*args[:at], stand_in, *args[at + 1 :], **kwargs)
    else:
        work = function(*args, **kwargs | {key: stand_in})
    pairs = list(zip(targets, copies, strict=True))
    if work is None:  # it was not asynchronous, or this rank is not in its group
        _arrive(pairs)
        return None
    return Held(work, pairs)


def _is_collected() -> bool:
    """Whether a coalescing manager is open: it issues calls at its end, on the tensors given."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]
    return bool(c10d._world.pg_coalesce_state)


def _arrive(pairs: Sequence[tuple[Tensor, Tensor]]) -> None:
    for target, copy in pairs:
        target.data.copy_(copy)


@dataclass(slots=True)
class Held:
    """The handle of a collective whose result is kept back until somebody asks for it."""

    work: Any
    pairs: list[tuple[Tensor, Tensor]] = field(repr=False)

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Wait, and let the result arrive."""
        done = self.work.wait(*args, **kwargs)
        _arrive(self.pairs)
        self.pairs = []
        return done

    def is_completed(self) -> bool:
        """Wait as well: code may ask until it is done, instead of calling ``wait``."""
        self.wait()
        return True

    def __getattr__(self, name: str) -> Any:
        if name not in ("is_success", "exception", "source_rank"):
            self.wait()
        return getattr(self.work, name)
