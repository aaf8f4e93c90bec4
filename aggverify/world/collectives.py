"""A collective as a value; a rank notes each on a line that its flight recorder can hold."""

from __future__ import annotations

from aggverify.codec import Part

SEPARATOR = "|"
_FIELDS = 7


class Collective(Part, frozen=True):
    """What one rank issued.

    ``group``: its name, "" where calls of different ranks need not match. ``elements``: of the
    tensor that all ranks must agree on, None where there is none. ``arguments``: those that must
    agree besides. ``place``: the candidate's line, as ``file.py:12``; "" for one of our own.
    """

    operation: str
    group: str = ""
    ranks: tuple[int, ...] = ()
    dtype: str = ""
    elements: int | None = None
    arguments: str = ""
    place: str = ""

    @property
    def call(self) -> str:
        """``all_reduce float32[4] SUM``."""
        size = "" if self.elements is None else f"[{self.elements}]"
        return " ".join(filter(None, (self.operation, self.dtype + size, self.arguments)))

    @property
    def text(self) -> str:
        """``all_reduce float32[4] SUM of ranks 0,1``."""
        of = f" of ranks {','.join(map(str, self.ranks))}" if self.ranks else ""
        return self.call + of


def read(entry: str) -> Collective:
    """Read a rank's note: ``group|ranks|operation|dtype|elements|arguments|place``."""
    parts = entry.split(SEPARATOR, _FIELDS - 1)
    if len(parts) < _FIELDS:
        return Collective(entry)  # not written by a tracer: scribbled over
    group, ranks, operation, dtype, elements, arguments, place = parts
    try:
        members, size = tuple(map(int, filter(None, ranks.split(",")))), _size(elements)
    except ValueError:
        return Collective(entry)
    return Collective(operation, group, members, dtype, size, arguments, place)


def _size(text: str) -> int | None:
    return int(text) if text else None
