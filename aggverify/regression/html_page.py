"""A comparison as one self-contained HTML file: no script, no address, nothing loaded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from aggverify.model import FindingRecord
from aggverify.regression import view_model
from aggverify.regression.model import Change, Comparison, harmless
from aggverify.report.html_page import Cell, Seen, heat_map

_SIGNS = re.compile(r"(?<=[/_.:])")


def render(comparison: Comparison) -> str:
    """Return the page; every text goes through the template's escaping."""
    safe = harmless(comparison)
    return _template().render(
        comparison=safe,
        headline=view_model.headline(safe),
        loud=view_model.loud(safe),
        quiet=view_model.quiet(safe),
        view_model=view_model,
        heat=lambda change: _heat(change, safe),
        breakable=_breakable,
    )


def _breakable(text: str) -> Markup:
    """Where a path or a name may go on in the next line: behind its signs, not inside a word."""
    parts = _SIGNS.split(text)
    return Markup("<wbr>").join(parts)


@lru_cache(maxsize=1)
def _template() -> Template:
    loaders = [PackageLoader(f"aggverify.{room}", "templates") for room in ("regression", "report")]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    ).get_template("compare.html")


Side = tuple[str, str, list[tuple[str, list[Cell]]]]


def _heat(change: Change, comparison: Comparison) -> list[Side]:
    """Return what both sides give every token of the case: their names, a description, and the map.

    One of them where the other has no weights.
    """
    found = change.finding
    if found is None:
        return []
    sides = (
        (comparison.base.name, change.base, change.base_weights),
        (comparison.head.name, change.head, change.head_weights),
    )
    return [
        (name, words, heat_map(found.step, _with_expected(found, weights), found.token))
        for name, words, weights in sides
        if weights is not None
    ]


def _with_expected(finding: FindingRecord, weights: Sequence[float]) -> list[Seen]:
    """Return pairs of the expected weight, None where it is not known, and the given one."""
    expected = finding.expected or [None] * len(weights)
    return list(zip(expected, weights, strict=True))
