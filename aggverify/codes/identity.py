"""What makes a finding the same one in another run, whatever its case: coarse, and plain data."""

from __future__ import annotations

from aggverify.codec import Part


class About(Part, frozen=True, order=True):
    """A reducer under one mode and engine, wherever its project lies."""

    target: str
    """``path:function`` from the project's folder, or ``package.module:function``."""
    mode: str
    engine: str


class Identity(Part, frozen=True):
    """Findings with the same one are the same finding to a baseline and to ``compare``."""

    about: About
    code: str
    dimensions: tuple[str, ...]
    """Fields of layout and precision that matter."""
    factor: str | None
    """The factor's name in sizes of the step and layout: ``cp_size``."""
    form: str | None = None
    """Without a factor the formula, or the ratio at the worst token; a baseline of an older version
    has none."""
