"""How far a run went: the largest of everything it executed, and each dtype on which layouts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from aggverify.oracles import Step
from aggverify.steps.case import Case
from aggverify.steps.layouts import dimensions

ONE_RANK = "one rank"
LAYOUTS = {"dp_size": "dp", "cp_size": "cp", "num_microbatches": "micro-batches"}


@dataclass(slots=True)
class Extent:
    """The largest of its kind in any executed case; 0 where there was none."""

    response: int = 0
    """Tokens."""
    sharded_response: int = 0
    """Of a response that was sliced over context-parallel ranks."""
    prompt: int = 0
    step_tokens: int = 0
    """Unmasked, of a whole step."""
    step_samples: int = 0
    micro_batch_samples: int = 0
    micro_batches: int = 0
    """On a rank."""
    dp_size: int = 0
    cp_size: int = 0
    virtual_ranks: int = 0
    """Of a world whose ranks were run one after another."""
    identifier: int = 0
    """Of a rollout or a prompt group."""
    dtypes: dict[str, set[str]] = field(default_factory=dict)
    """The kinds of layout each was run on."""
    _last: Step | None = None
    _response: int = 0

    def add(self, cases: Iterable[Case]) -> None:
        """Note executed cases; several in a row are often of one step."""
        for case in cases:
            if case.step is not self._last:
                self._add_step(case.step)
            layout = case.layout
            if layout.cp_size > 1:
                self.sharded_response = max(self.sharded_response, self._response)
            largest = max([len(cell) for _, _, cell in layout.cells()])
            self.micro_batch_samples = max(self.micro_batch_samples, largest)
            self.micro_batches = max(self.micro_batches, layout.num_microbatches)
            self.dp_size = max(self.dp_size, layout.dp_size)
            self.cp_size = max(self.cp_size, layout.cp_size)
            kinds = self.dtypes.setdefault(case.dtype, set())
            kinds.update([LAYOUTS[name] for name in dimensions(layout)] or [ONE_RANK])

    def add_virtual(self, cases: Iterable[Case]) -> None:
        """Note cases whose ranks were run one after another."""
        for case in cases:
            self.virtual_ranks = max(self.virtual_ranks, case.layout.world_size)

    def _add_step(self, step: Step) -> None:
        samples, self._last = step.samples, step
        self._response = max([s.response_length for s in samples])
        self.response = max(self.response, self._response)
        self.prompt = max(self.prompt, *[s.prompt_length for s in samples])
        self.step_tokens = max(self.step_tokens, step.num_unmasked)
        self.step_samples = max(self.step_samples, len(samples))
        self.identifier = max(self.identifier, *step.rollouts, *step.groups)
