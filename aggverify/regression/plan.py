"""What is checked of two revisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ComparisonPlan:
    """The same for both: targets, and arguments of ``aggverify check``."""

    targets: tuple[str, ...]
    options: tuple[str, ...] = ()
    baseline: str | None = None
    """Path of each tree's own baseline; a tree without that file has no known findings."""

    def arguments(self, folder: Path) -> Sequence[str]:
        """Return the options of a check that runs in ``folder``."""
        if self.baseline is None or not (folder / self.baseline).is_file():
            return self.options
        return (*self.options, "--baseline", self.baseline)
