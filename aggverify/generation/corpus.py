"""Hard cases as text, one table each in corpus.toml: what is hard, and where it comes from."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import Layout
from aggverify.steps.notation import parse_micro_batches, parse_step

VERSION = 2
"""Of the cases as snapshots name them: raised with every change of one, or of their names."""


@dataclass(frozen=True, slots=True)
class CorpusCase:
    """A case that is worth running before any is drawn."""

    name: str
    case: Case
    why: str
    """What about it is hard."""
    bug: str
    """Who went wrong on it: repository and thread, or the number in the list of bugs."""
    shows: tuple[str, ...]
    """Codes that a reducer which is wrong on it gets."""
    checks: tuple[str, ...]
    """The checks that begin with it; all of them where there is none."""


@cache
def corpus() -> tuple[CorpusCase, ...]:
    """Every case, in the order of the file."""
    text = resources.files("aggverify.generation").joinpath("corpus.toml").read_text("utf-8")
    return tuple(_corpus_case(name, entry) for name, entry in tomllib.loads(text).items())


def _corpus_case(name: str, entry: Mapping[str, Any]) -> CorpusCase:
    step = parse_step(entry["step"])
    cells = parse_micro_batches(entry["micro_batches"])
    layout = Layout(cells, entry.get("cp", 1), entry.get("kind", "zigzag"))
    losses = tuple(entry.get("times", 1.0) * loss for loss in plain_losses(step))
    case = Case(step, layout, losses, entry.get("dtype", "float64"))
    shows, checks = tuple(entry["shows"]), tuple(entry.get("checks", ()))
    return CorpusCase(name, case, entry["why"], entry["bug"], shows, checks)


def plain_losses(step: Step) -> tuple[float, ...]:
    """``(3t + 1) / 16`` for token t: positive, distinct, exact in every dtype up to 80 tokens."""
    return tuple((3 * t + 1) / 16 for t in range(step.num_response_tokens))
