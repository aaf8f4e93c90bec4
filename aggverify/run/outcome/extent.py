"""How far a run went: the largest of everything it executed, and each dtype on which layouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import fields

from aggverify.model import Tried
from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import dimensions

ONE_RANK = "one rank"
LAYOUTS = {"dp_size": "dp", "cp_size": "cp", "num_microbatches": "micro-batches"}
NUMBERS = tuple(f.name for f in fields(Tried) if f.name != "dtypes")


@dataclass(slots=True)
class Extent:
    """The largest of its kind in any executed case, as cases come."""

    _largest: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NUMBERS, 0))
    _dtypes: dict[str, set[str]] = field(default_factory=dict)
    _last: Step | None = None
    _response: int = 0

    @property
    def tried(self) -> Tried:
        """The largest of everything so far."""
        kinds = {dtype: tuple(sorted(on)) for dtype, on in sorted(self._dtypes.items())}
        return Tried(**self._largest, dtypes=kinds)

    def add(self, cases: Iterable[Case]) -> None:
        """Note executed cases; of neighbours with the same step it is measured once."""
        for case in cases:
            if case.step is not self._last:
                self._add_step(case.step)
            layout = case.layout
            if layout.cp_size > 1:
                self._note(sharded_response=self._response)
            self._note(
                micro_batch_samples=max([len(cell) for _, _, cell in layout.cells()]),
                micro_batches=layout.num_microbatches,
                dp_size=layout.dp_size,
                cp_size=layout.cp_size,
            )
            kinds = self._dtypes.setdefault(case.dtype, set())
            kinds.update([LAYOUTS[name] for name in dimensions(layout)] or [ONE_RANK])

    def add_virtual(self, cases: Iterable[Case]) -> None:
        """Note cases whose ranks were run one after another."""
        for case in cases:
            self._note(virtual_ranks=case.layout.world_size)

    def _add_step(self, step: Step) -> None:
        samples, self._last = step.samples, step
        self._response = max([s.response_length for s in samples])
        self._note(
            response=self._response,
            prompt=max([s.prompt_length for s in samples]),
            step_tokens=step.num_unmasked,
            step_samples=len(samples),
            identifier=max(*step.rollouts, *step.groups),
        )

    def _note(self, **sizes: int) -> None:
        for name, size in sizes.items():
            self._largest[name] = max(self._largest[name], size)
