"""Which optimizer steps are recorded: ``first 2, every 500th, at most 20``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from aggverify.errors import InputError

USUAL = "first 3, every 500th, at most 20"
_FORMS = {
    "first": re.compile(r"first (\d+)"),
    "every": re.compile(r"every (\d+)(?:st|nd|rd|th)?"),
    "most": re.compile(r"at most (\d+)"),
}


@dataclass(frozen=True, slots=True)
class StepSelection:
    """Called with a step's number, returns whether it is recorded; after ``most`` steps none is."""

    first: int = 0
    every: int = 0
    most: int = 1 << 62

    @staticmethod
    def read(text: str) -> StepSelection:
        """Raise InputError for anything else."""
        found: dict[str, int] = {}
        for part in map(str.strip, (text or USUAL).split(",")):
            matches = {name: form.fullmatch(part) for name, form in _FORMS.items()}
            name = next((name for name, match in matches.items() if match), None)
            if name is None or (name != "first" and part.split()[-1].startswith("0")):
                raise InputError(f"steps are chosen as {USUAL!r} does it, got {text!r}")
            match = matches[name]
            assert match is not None
            found[name] = int(match[1])
        return StepSelection(**found)

    def __call__(self, step: int) -> bool:
        return (step < self.first or self._every(step)) and self._before(step) < self.most

    def _every(self, step: int) -> bool:
        return bool(self.every) and step % self.every == 0

    def _before(self, step: int) -> int:
        """How many were recorded before it."""
        first = min(step, self.first)
        if not self.every:
            return first
        later = -(-step // self.every) - -(-first // self.every)
        return first + max(later, 0)
