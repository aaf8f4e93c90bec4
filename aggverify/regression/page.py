"""A comparison as one self-contained HTML file: no script, no address, nothing loaded."""

from __future__ import annotations

from functools import lru_cache

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template

from aggverify.regression import reading
from aggverify.regression.model import Change, Comparison, harmless
from aggverify.report.page import Cell, heat_map


def render(comparison: Comparison) -> str:
    """The page; every text goes through the template's escaping."""
    safe = harmless(comparison)
    return _template().render(
        comparison=safe,
        headline=reading.headline(safe),
        loud=reading.loud(safe),
        quiet=reading.quiet(safe),
        reading=reading,
        heat=_heat,
    )


@lru_cache(maxsize=1)
def _template() -> Template:
    loaders = [PackageLoader(f"aggverify.{room}", "templates") for room in ("regression", "report")]
    return Environment(
        loader=ChoiceLoader(loaders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
    ).get_template("compare.html")


def _heat(change: Change) -> list[tuple[str, list[Cell]]]:
    found = change.finding
    return [] if found is None else heat_map(found.step, found.weights, found.token)
