"""Note every collective a rank issues, by wrapping torch.distributed's functions.

gloo itself is silent about ranks that disagree on dtype or operation, and hangs or aborts on the
rest; the notes of all ranks side by side show what went wrong. An entry is a line that
``collectives.read`` makes a value of; entries of one group must agree on all its ranks, in order,
but for the place: the line of code under test that issued it, empty for this package's own.
Point-to-point calls and others that differ between ranks by right get an empty group name.
"""

from __future__ import annotations

import functools
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from aggverify.world.deferred_completion import issued
from aggverify.world.flight_recorder import Writer

# Longer traces than this are compared by length and checksum only.
KEPT = 200


class Talks(Exception):
    """A collective was issued where there is no other rank."""


class Tracer:
    """The rank-wide notes of the current job."""

    def __init__(self) -> None:
        self.entries: list[str] = []
        self.count = 0
        self.checksums: dict[str, int] = {}
        self.recorder: Writer | None = None
        self.prefixes: dict[Any, str] = {}
        # Collectives under way: functions of torch call each other, and only the outermost call,
        # the candidate's, is noted.
        self.depth = 0
        self.alone = False
        """Whether this process stands for a rank without others: a collective raises ``Talks``."""

    def begin(self, job: int) -> None:
        """Forget the last job."""
        self.entries = []
        self.count = 0
        self.checksums = {}
        self.depth = 0
        if self.recorder is not None:
            self.recorder.begin(job)

    def enter(self, group: Any, operation: str, shape: str = "|", arguments: str = "") -> None:
        """Note a collective that is about to be issued; ``shape`` is ``dtype|elements``."""
        self.depth += 1
        entry = f"{self._prefix(group)}{operation}|{shape}|{arguments}"
        self.count += 1
        if len(self.entries) >= KEPT:
            name = entry.partition("|")[0]
            self.checksums[name] = zlib.crc32(entry.encode(), self.checksums.get(name, 0))
        entry = f"{entry}|{_where()}"
        if len(self.entries) < KEPT:
            self.entries.append(entry)
        if self.recorder is not None:
            self.recorder.enter(entry)
        if self.alone:
            self.leave()
            raise Talks(f"{operation} among ranks that are not there")

    def leave(self) -> None:
        """Note that it has returned."""
        self.depth -= 1
        if self.recorder is not None:
            self.recorder.leave()

    def own(self, *, begins: bool) -> None:
        """Note that work of the handler's own begins or ends.

        What fails in it is no fault of the code under test.
        """
        if self.recorder is not None:
            self.recorder.own(begins=begins)

    def pulse(self) -> None:
        """Note that there was some progress, outside any collective."""
        if self.recorder is not None:
            self.recorder.pulse()

    def _prefix(self, group: Any) -> str:
        prefix = self.prefixes.get(group)
        if prefix is None:
            prefix = self.prefixes[group] = _group_prefix(group)
        return prefix


_OURS = f"{Path(__file__).resolve().parents[1]}/"


@functools.cache
def _torch() -> str:
    import torch

    return f"{Path(torch.__file__).parent}/"  # torchtitan next to it is not torch


def _where() -> str:
    """``file.py:12`` of the nearest caller that is neither torch's nor this module's."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ or frame.f_code.co_filename.startswith(_torch()):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    file = frame.f_code.co_filename
    if file.startswith(_OURS):
        return ""
    name = file.rpartition("/")[2]
    return f"{name}:{frame.f_lineno}".replace("|", "_").replace("\n", "_")


TRACER = Tracer()
# Stands for a group where calls of different ranks need not match.
NOT_COMPARED = "not compared"


def _group_prefix(group: Any) -> str:
    import torch.distributed as dist

    if group is NOT_COMPARED:
        return "||"
    try:
        group = dist.group.WORLD if group is None else group
        ranks = dist.get_process_group_ranks(group)
        return f"{group.group_name}|{','.join(map(str, ranks))}|"
    except Exception:  # not a member, or destroyed: the call itself will complain
        return "||"


@functools.cache
def _dtype(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _shape(tensor: Any) -> str:
    # The number of elements, not the shape: gloo compares no more, nor do frameworks that flatten.
    try:
        return f"{_dtype(tensor.dtype)}|{tensor.numel()}"
    except Exception:
        return f"{type(tensor).__name__}|"


def _op(op: Any) -> str:
    return str(op).rpartition(".")[2]


# Arguments of a collective that every rank must agree on: position, name, and how they are noted.
_Field = tuple[int, str, Callable[[Any], str]]
_TENSOR: tuple[_Field, ...] = ((0, "tensor", _shape),)


def _dtype_only(tensor: Any) -> str:
    return f"{_dtype(tensor.dtype)}|" if hasattr(tensor, "dtype") else "|"


def _number(name: str) -> Callable[[Any], str]:
    return lambda value: f"{name}={value}"


_FIELDS: dict[str, tuple[_Field, ...]] = {
    "all_reduce": (*_TENSOR, (1, "op", _op)),
    "reduce": (*_TENSOR, (1, "dst", _number("dst")), (2, "op", _op)),
    "broadcast": (*_TENSOR, (1, "src", _number("src"))),
    "all_gather": ((1, "tensor", _shape),),
    "all_gather_into_tensor": ((1, "input_tensor", _shape),),
    "reduce_scatter": ((0, "output", _shape), (2, "op", _op)),
    "reduce_scatter_tensor": ((0, "output", _shape), (2, "op", _op)),
    "all_to_all": (),
    "all_to_all_single": ((1, "input", _dtype_only),),
    "gather": (*_TENSOR, (2, "dst", _number("dst"))),
    "scatter": ((0, "tensor", _shape), (2, "src", _number("src"))),
    "barrier": (),
    "all_reduce_coalesced": ((1, "op", _op),),
    "all_gather_coalesced": (),
}
_GROUP_AT = {
    "all_reduce": 2, "reduce": 3, "broadcast": 2, "all_gather": 2, "all_gather_into_tensor": 2,
    "reduce_scatter": 3, "reduce_scatter_tensor": 3, "all_to_all": 2, "all_to_all_single": 4,
    "gather": 3, "scatter": 3, "barrier": 0, "all_reduce_coalesced": 2, "all_gather_coalesced": 2,
}  # fmt: skip
_DEFAULT_OP = "SUM"
_POINT_TO_POINT = ("send", "recv", "isend", "irecv")


def install() -> None:
    """Wrap torch.distributed, before any code under test can take hold of its functions."""
    import torch.distributed as dist
    from torch.distributed import distributed_c10d as c10d

    wrapped: dict[str, Callable[..., Any]] = {}
    for name, fields in _FIELDS.items():
        if hasattr(c10d, name):
            wrapped[name] = _collective(name, getattr(c10d, name), fields, _GROUP_AT[name])
    for name in _POINT_TO_POINT:
        wrapped[name] = _noted(getattr(c10d, name), name)
    wrapped["new_group"] = _new_group(c10d.new_group)
    for name, function in wrapped.items():
        setattr(c10d, name, function)
        setattr(dist, name, function)
    for space in FUNCTIONAL:
        _trace_functional(space)
    work: Any = c10d.Work
    work.wait = _noted(work.wait, "wait of an asynchronous collective")


def _collective(
    name: str, function: Callable[..., Any], fields: tuple[_Field, ...], group_at: int
) -> Callable[..., Any]:
    tracer = TRACER
    shapes = [field for field in fields if field[2] in (_shape, _dtype_only)]
    others = [field for field in fields if field not in shapes]

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if tracer.depth:
            return function(*args, **kwargs)
        shape, arguments, given = "|", "", len(args)
        for at, key, show in shapes:
            if at < given or key in kwargs:
                shape = show(args[at] if at < given else kwargs[key])
        for at, key, show in others:
            if at < given or key in kwargs:
                text = show(args[at] if at < given else kwargs[key])
            else:
                text = _DEFAULT_OP if show is _op else ""
            arguments = f"{arguments} {text}" if arguments and text else arguments or text
        group = args[group_at] if group_at < given else kwargs.get("group")
        tracer.enter(group, name, shape, arguments)
        try:
            return issued(function, name, args, kwargs)
        finally:
            tracer.leave()

    return traced


FUNCTIONAL = ("_c10d_functional", "_c10d_functional_autograd")
"""Operators that take a group by its name: functional collectives, and DTensor's, end there."""
_FUNCTIONAL_OPERATIONS = (
    "all_reduce",
    "all_reduce_",
    "all_reduce_coalesced",
    "all_reduce_coalesced_",
    "all_gather_into_tensor",
    "all_gather_into_tensor_out",
    "all_gather_into_tensor_coalesced",
    "reduce_scatter_tensor",
    "reduce_scatter_tensor_out",
    "reduce_scatter_tensor_coalesced",
    "all_to_all_single",
    "broadcast",
    "broadcast_",
)


def _trace_functional(space: str) -> None:
    import torch

    operators = getattr(torch.ops, space)
    for name in _FUNCTIONAL_OPERATIONS:
        if hasattr(operators, name):
            setattr(operators, name, _Functional(getattr(operators, name), name))


class _Functional:
    """An operator of torch, whose calls are noted; all else of it is its own."""

    def __init__(self, operator: Any, name: str) -> None:
        self._operator, self._name = operator, name.removesuffix("_").removesuffix("_out")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch

        if torch.compiler.is_compiling() or TRACER.depth:
            return self._operator(*args, **kwargs)
        given = [*args, *kwargs.values()]
        tensors = given[0] if isinstance(given[0], list | tuple) else given[:1]
        shape = _shape(tensors[0]) if len(tensors) == 1 else "|"
        named = [each for each in given[1:] if isinstance(each, str)]
        group = _group_of(given)
        TRACER.enter(group, self._name, shape, named[0].upper() if len(named) > 1 else "")
        try:
            return self._operator(*args, **kwargs)
        finally:
            TRACER.leave()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operator, name)


def _group_of(given: Sequence[Any]) -> Any:
    """Return the group that an operator is given, itself or by its name, as its last text."""
    from torch.distributed import distributed_c10d as c10d

    for each in reversed(given):
        if isinstance(each, c10d.ProcessGroup):
            return each
        if isinstance(each, str):
            try:
                return c10d._resolve_process_group(each)  # type: ignore[arg-type, attr-defined]
            except (RuntimeError, ValueError):
                break  # the call itself will complain
    return NOT_COMPARED


def _noted(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    tracer = TRACER

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        if tracer.depth:
            return function(*args, **kwargs)
        tracer.enter(NOT_COMPARED, what)
        try:
            return function(*args, **kwargs)
        finally:
            tracer.leave()

    return traced


def _new_group(function: Callable[..., Any]) -> Callable[..., Any]:
    tracer = TRACER

    @functools.wraps(function)
    def traced(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
        # Every rank of the world must make it, members or not, unless asked otherwise.
        local = kwargs.get("use_local_synchronization", False)
        members = str(ranks).replace("\n", " ").replace("|", " ")
        tracer.enter(NOT_COMPARED if local else None, "new_group", arguments=members)
        try:
            return function(ranks, *args, **kwargs)
        finally:
            tracer.leave()

    return traced


def sequences() -> dict[str, int]:
    """Per group of this rank, how many collectives its backend has been given so far."""
    c10d: Any = sys.modules["torch.distributed.distributed_c10d"]  # asked after each job
    found: dict[str, int] = {}
    for group in list(c10d._world.pg_map):
        try:
            found[group.group_name] = group._get_sequence_number_for_group()
        except RuntimeError:  # backends without sequence numbers
            continue
    return found
