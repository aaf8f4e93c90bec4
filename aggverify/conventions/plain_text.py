"""Plain data as Python literals, as short as they can be read: for the script of a finding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

_MANY = 8
"""Equal or consecutive neighbours that are counted instead of written one by one."""
WIDTH = 96


def row(numbers: Iterable[float | Fraction]) -> str:
    """A list; runs of equal numbers are counted, and of consecutive ones."""
    left = list(numbers)
    parts: list[str] = []
    while left:
        equal, rising = _run(left, 0), _run(left, 1)
        count = max(equal, rising)
        if count < _MANY:
            count, text = 1, number(left[0])
        elif equal == count:
            text = f"*[{number(left[0])}] * {count}"
        else:
            text = f"*range({left[0]}, {int(left[0]) + count})"
        parts.append(text)
        del left[:count]
    if len(parts) == 1 and parts[0].startswith("*["):
        return parts[0][1:]
    return f"[{', '.join(parts)}]"


def _run(numbers: Sequence[float | Fraction], by: int) -> int:
    """How many, from the first one, each differ so from the one before; whole ones where by 1."""
    first = numbers[0]
    if by and not isinstance(first, int):
        return 1
    shown = number(first)
    for n, other in enumerate(numbers):
        if not (other == int(first) + n if by else number(other) == shown):
            return n
    return len(numbers)


def number(value: float | Fraction) -> str:
    """One number; what is not finite by its name."""
    if isinstance(value, Fraction):
        return str(value).replace("/", " / ")
    return str(value) if math.isfinite(value) else f'float("{value}")'


def tensor(numbers: Sequence[int]) -> str:
    """Of whole numbers, 1-D."""
    return f"tensor({row(numbers)})" if numbers else "tensor([]).long()"


def tensors(rows: Iterable[Sequence[int]]) -> str:
    """A list of them."""
    return listed(map(tensor, rows))


def listed(texts: Iterable[str]) -> str:
    """A list of what is text already."""
    return f"[{', '.join(texts)}]"


def named(values: Mapping[str, str], indent: int, before: int = 0) -> str:
    """``dict(...)``, over as many lines as it takes behind so many blanks, or on one, where as many
    letters are before it."""
    words = [f"{name}={text}" for name, text in values.items()]
    flat = f"dict({', '.join(words)})"
    if indent + before + len(flat) <= WIDTH:
        return flat
    lines = [" " * (indent + 3)]
    for word in words:
        if len(lines[-1]) + len(word) + 2 > WIDTH:
            lines.append(" " * (indent + 3))
        lines[-1] += f" {word},"
    return "\n".join(["dict(", *lines]).rstrip(",") + ")"
