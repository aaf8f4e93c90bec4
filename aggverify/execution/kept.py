"""Cases that ranks have been given, and executions that are kept for those that ask again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from aggverify.execution.claim import Claim
from aggverify.execution.executed import Execution
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.oracles import Step
from aggverify.steps.layouts import Layout

MOST_TOKENS = 1000
"""Response tokens, at most, of a step whose execution is kept."""
MOST_KEPT = 4096
"""Executions that are kept, of all claims."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """Cases that the ranks have been given."""

    executions: Callable[[], list[Execution]]
    """Waits for all of them."""
    stumbles: Callable[[], bool]
    """Waits for the first half of them; whether any of those came to no result."""


_Key = tuple[Step, Layout, str, bytes, bool]


@dataclass(slots=True)
class KeptExecutions:
    """By claim and case, until they are cleared; none that came to no result."""

    _kept: dict[Claim, dict[_Key, Execution]] = field(default_factory=dict)

    def clear(self) -> None:
        """Have everything run again."""
        self._kept.clear()

    def or_submitted(
        self,
        subject: Subject,
        specs: Sequence[RunSpec],
        submit: Callable[[Subject, Sequence[RunSpec]], Submitted],
    ) -> Submitted:
        """Submit those that are not kept; the others have their executions already."""
        kept = self._kept.setdefault(subject.claim, {})
        keys = [_key(t) if _is_bare(t) else None for t in specs]
        known = [None if key is None else kept.get(key) for key in keys]
        left = [t for t, found in zip(specs, known, strict=True) if found is None]
        rest = submit(subject, left)

        def executions() -> list[Execution]:
            new = iter(rest.executions())
            done = [next(new) if found is None else found for found in known]
            full = sum(map(len, self._kept.values())) >= MOST_KEPT
            for key, execution in zip(keys, done, strict=True):
                if key is not None and execution.failure is None and not full:
                    kept[key] = execution
            return done

        return Submitted(executions, rest.stumbles)


def _key(wanted: RunSpec) -> _Key:
    """Key by the bytes of its losses: as numbers, 0.0 equals -0.0, and NaN not even itself."""
    case = wanted.case
    losses = np.array(case.losses, dtype=np.float64).tobytes()
    return case.step, case.layout, case.dtype, losses, wanted.noted


def _is_bare(wanted: RunSpec) -> bool:
    """Whether nothing is asked for but a case, and its lines; and no large one."""
    tokens = wanted.case.step.num_response_tokens
    return tokens <= MOST_TOKENS and wanted == RunSpec(wanted.case, noted=wanted.noted)
