"""The plots of ``performance.md``, from the figures its benchmarks write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("svg")

import matplotlib.pyplot as plt

# The same figures give the same file.
matplotlib.rcParams.update({"svg.hashsalt": "aggverify", "svg.fonttype": "none"})
WORLDS = (2, 4, 8)
WAYS = {
    "simulation": "simulation, nothing communicated",
    "pool": "aggverify's pool",
    "bare": "bare collectives, one case at a time",
    "continuous": "MultiProcContinuousTest",
    "spawn": "mp.spawn per case",
}


def throughput(figures: Mapping[str, float], path: Path) -> None:
    """Cases per second by world, every way beside the others, logarithmic."""
    figure, axes = plt.subplots(figsize=(7, 4))
    width = 0.8 / len(WAYS)
    for n, (way, label) in enumerate(WAYS.items()):
        at = [place + (n - len(WAYS) / 2 + 0.5) * width for place in range(len(WORLDS))]
        axes.bar(at, [figures[f"{way} {world}"] for world in WORLDS], width, label=label)
    axes.set_yscale("log")
    axes.set_xticks(range(len(WORLDS)), [f"world of {world}" for world in WORLDS])
    axes.set_ylabel("cases per second")
    axes.legend(fontsize="small")
    _save(figure, path)


def scaling(figures: Mapping[str, Sequence[Sequence[float]]], path: Path) -> None:
    """Seconds against tokens of one case, and against the number of cases."""
    figure, both = plt.subplots(1, 2, figsize=(9, 4))
    for axes, (what, pairs) in zip(both, figures.items(), strict=True):
        sizes, seconds = zip(*pairs, strict=True)
        axes.loglog(sizes, seconds, "o-", label="measured")
        slope = [seconds[-1] * size / sizes[-1] for size in sizes]
        axes.loglog(sizes, slope, ":", color="grey", label="linear")
        axes.set_xlabel("response tokens of one case" if what == "tokens" else "cases of 40 tokens")
        axes.set_ylabel("seconds")
        axes.legend(fontsize="small")
    _save(figure, path)


def _save(figure: plt.Figure, path: Path) -> None:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
