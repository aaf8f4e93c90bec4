"""Every format a comparison can be written in: one file each, and one entry here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from aggverify.errors import unknown
from aggverify.regression.model import Comparison

FORMATS: Mapping[str, str] = {
    "text": "aggverify.regression.text",
    "md": "aggverify.regression.markdown",
    "json": "aggverify.regression.model",
    "html": "aggverify.regression.html_page",
    "codequality": "aggverify.regression.annotations",
}
"""The module whose ``render(comparison)`` gives the text, by name."""


def one(name: str) -> str:
    """Return the module of that format; raises InputError with the nearest one."""
    if name not in FORMATS:
        raise unknown("format of a comparison", name, FORMATS)
    return FORMATS[name]


def rendered(comparison: Comparison, name: str) -> str:
    """Return the comparison in that format; raises InputError for none."""
    text: str = import_module(one(name)).render(comparison)
    return text
