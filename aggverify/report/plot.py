"""Error over bound by size of the step and dtype, as the numbers of a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aggverify.model import Margin

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 60, 620, 20, 190
_CLASSES = ("s1", "s2", "s3", "s4")


@dataclass(frozen=True, slots=True)
class Line:
    """One dtype: its colour by class, its points as SVG writes them, and each with its words."""

    dtype: str
    shade: str
    points: str
    dots: tuple[tuple[float, float, str], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over sizes; ``across`` and ``up`` are places on the axes with their labels."""

    lines: tuple[Line, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    bound: float
    """Where an error is as large as its bound."""


def margin_plot(margins: Sequence[Margin]) -> Plot | None:
    """Return the drawing; None where nothing was judged by a bound."""
    sizes = sorted({size.tokens for margin in margins for size in margin.by_size})
    if not sizes:
        return None
    step = (RIGHT - LEFT) / len(sizes)
    place = {size: round(LEFT + step * (n + 0.5), 1) for n, size in enumerate(sizes)}
    top = max(1.0, *(s.worst_error_over_bound for m in margins for s in m.by_size))

    def height(share: float) -> float:
        return round(BOTTOM - (BOTTOM - TOP) * share / top, 1)

    lines = []
    for margin, shade in zip(margins, _CLASSES, strict=False):
        dots = tuple(
            (
                place[s.tokens],
                height(s.worst_error_over_bound),
                f"{margin.dtype}, up to {s.tokens:,} tokens: {s.worst_error_over_bound:.2f}",
            )
            for s in margin.by_size
        )
        points = " ".join(f"{x},{y}" for x, y, _ in dots)
        lines.append(Line(margin.dtype, shade, points, dots))
    across = tuple((place[size], f"{size:,}") for size in sizes)
    up = tuple((height(share), f"{share:g}") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Plot(tuple(lines), across, up, height(1.0))
