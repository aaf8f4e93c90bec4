"""The rank's side: run a training step of the candidate, read the effective weights.

Constructed by the world package in a template process; nothing here runs in the parent.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aggverify.conventions import (
    ADAPTED,
    Convention,
    Site,
    calls_bound,
    convention,
    megatron_mpu,
)
from aggverify.conventions.calls import PerCallConvention
from aggverify.engines import EngineSession, EngineSpec, Gradients, engine
from aggverify.steps.layouts import Layout
from aggverify.trainer import blame
from aggverify.trainer.answer import Answer
from aggverify.trainer.argument_changes import ArgumentWatch
from aggverify.trainer.argument_text import RecordedArguments
from aggverify.trainer.assignment import GROUPS, Assignment
from aggverify.trainer.callables import reached
from aggverify.trainer.compiling import Compiling
from aggverify.trainer.contract import outcomes, refusals
from aggverify.trainer.grid import Grid, GridCell
from aggverify.trainer.line_coverage import LineCoverage
from aggverify.trainer.loading import described, load, load_adapter
from aggverify.trainer.local_step import CandidateStep
from aggverify.trainer.memory import make_room, peak
from aggverify.trainer.preloading import preload
from aggverify.trainer.recording import recorded
from aggverify.trainer.source import read
from aggverify.trainer.virtual import as_rank, raised_by_distributed
from aggverify.world import RankPlace
from aggverify.world.deferred_completion import ARRIVAL
from aggverify.world.trace import TRACER

if TYPE_CHECKING:
    import torch

_MOST_CLIPS = 64
Function = Callable[..., Any]
Reply = tuple[dict[str, Any], bytes]


@dataclass(frozen=True, slots=True)
class PendingReduction:
    """Cases whose gradients are being reduced."""

    rank: int
    begun: Sequence[Answer]
    gradients: Gradients

    @property
    def arrived(self) -> bool:
        """Whether :meth:`answers` would not wait."""
        return self.gradients.arrived

    def answers(self) -> list[Reply]:
        """Return a reply for every case; rank 0 has the reduced gradient."""
        replies = []
        for answer, gradient in zip(self.begun, self.gradients.wait(), strict=True):
            blob = gradient.cpu().numpy().tobytes()
            data = answer.to_json() | {"checksum": zlib.crc32(blob)}
            replies.append((data, blob if self.rank == 0 else b""))
        return replies


class Trainer:
    """Runs cases: calls the candidate for an engine's session, which does the rest."""

    def __init__(self, setup: dict[str, Any]) -> None:
        megatron_mpu.install()
        self._compiling = Compiling(for_real=setup.get("compile", False))
        adapter = setup.get("adapter")
        self._adapted = None if adapter is None else load_adapter(adapter)
        self._module = load(setup["target"])
        preload(self._module, setup.get("engine"))
        # Ranks that compile are not traced: the compiler looks at the same frames.
        self._source = read(self._module)
        looked_at = self._source is not None and not setup.get("compile")
        self._covering = LineCoverage(
            self._module.__file__ if looked_at else None,
            self._source.conditions if self._source else None,
        )
        self._named: str | None = setup["target"].get("name")
        self._conventions = cache(convention)
        self._specs: dict[str, EngineSpec] = {}
        self._sessions: dict[str, EngineSession] = {}
        self._cold = True

    def describe(self) -> dict[str, Any]:
        """Return what the module offers, with what the person named, and its own declaration."""
        return described(self._module, self._named, self._source)

    def start(self, place: RankPlace) -> None:
        """Remember this rank's place in its world."""
        import torch

        self._rank, self._grid = place.rank, Grid(place.rank)
        self._device: torch.device = torch.device(place.device)

    def preparation(self, jobs: Sequence[dict[str, Any]]) -> Callable[[], None] | None:
        """Return what to do first, apart from these jobs: warm up an engine new to this rank."""
        new = {job["engine"] for job in jobs if "engine" in job} - self._sessions.keys()
        return (lambda: self._warm_up(sorted(new))) if new else None

    def _warm_up(self, names: Sequence[str]) -> None:
        for name in names:
            self._specs[name] = spec = engine(name)
            session = spec.session(self._device)
            session.warm_up()
            self._sessions[name] = session

    def __call__(self, job: dict[str, Any]) -> Reply:
        """Run one assignment; rank 0 returns the reduced gradient, every rank its local losses.

        Or make the groups of some layouts, and do nothing with them.
        """
        if GROUPS in job:
            TRACER.own(begins=True)
            for layout in map(Layout.from_json, job[GROUPS]):
                self._grid.cell(layout)
            return {}, b""
        wanted = Assignment.from_json(job)
        try:
            return self._ran(wanted)
        except Exception:
            self._compiling.blame()
            raise

    def _ran(self, wanted: Assignment) -> Reply:
        if wanted.record:
            return self._recorded(wanted)
        for case in wanted.before:
            self._run(replace(wanted, case=case), self._function(wanted))
        function = self._function(wanted)
        if wanted.misuse:
            how = self._called(wanted)
            if isinstance(how, PerCallConvention):
                site = self._site(wanted, self._grid.cell(wanted.case.layout))
                return Answer(refusals=outcomes(function, how, site)).to_json(), b""
            found = refusals(lambda f: self._run(wanted, f), function, how, wanted.mode)
            return Answer(refusals=found).to_json(), b""
        if wanted.show:
            shown = RecordedArguments()
            with suppress(Exception):  # what it raises is known: it is why this is asked
                self._local(wanted, function, shown)
            return Answer(given=tuple(shown.given)).to_json(), b""
        if wanted.virtual:
            return self._virtually(wanted, function)
        return self._run(wanted, function)

    def _recorded(self, wanted: Assignment) -> Reply:
        """Return the calls of all steps, of which none is made."""
        spec, how, found = self._specs[wanted.engine], self._called(wanted), []
        TRACER.own(begins=True)
        for case in (*wanted.before, wanted.case):
            one = replace(wanted, case=case)
            site = self._site(one, self._grid.cell(case.layout))
            found.append(recorded(how, wanted.function, self._module, site, spec))
        TRACER.own(begins=False)
        return Answer().to_json(), json.dumps(found).encode()

    def _virtually(self, wanted: Assignment, function: Function) -> Reply:
        """Run the ranks one after another; return their losses, and the sum of their gradients.

        The parent reduces the sum: only engines whose formula is data are run in this way.
        """
        answers, gradients, issued = [], [], TRACER.count
        for rank in wanted.virtual:
            try:
                with as_rank(rank, wanted.case.layout) as cell:
                    answer, part = self._local(wanted, function, cell=cell)
            except Exception as error:
                if TRACER.count == issued and not raised_by_distributed(error):
                    raise
                return self._communicates(wanted)
            if TRACER.count > issued:  # nothing was sent, so its result means nothing
                return self._communicates(wanted)
            answers.append(answer)
            gradients.append(part.gradient)
        whole = Answer(
            losses=tuple(x for answer in answers for x in answer.losses),
            counts=tuple(n for answer in answers for n in answer.counts),
            lines=tuple(sorted({n for answer in answers for n in answer.lines})),
            outcomes=tuple(sorted({n for answer in answers for n in answer.outcomes})),
            first_seconds=max(answer.first_seconds for answer in answers),
        )
        return whole.to_json(), sum(gradients).cpu().numpy().tobytes()

    def _communicates(self, wanted: Assignment) -> Reply:
        """Return the reply of virtual ranks that issue collectives: nothing but that they do."""
        count = len(wanted.virtual) * wanted.case.layout.num_microbatches
        nothing = Answer(losses=(0.0,) * count, counts=(0,) * count, communicates=True)
        return nothing.to_json(), bytes(8 * wanted.case.step.num_response_tokens)

    def together(
        self, jobs: Sequence[dict[str, Any]], between: Callable[[], None]
    ) -> PendingReduction:
        """Run several cases with one reduction, begun at the end; their engine must merge."""
        wanted = list(map(Assignment.from_json, jobs))
        [name] = {one.engine for one in wanted}
        begun, parts = [], []
        for one in wanted:
            answer, part = self._local(one, self._function(one))
            begun.append(answer)
            parts.append(part)
            between()
        return PendingReduction(self._rank, begun, self._sessions[name].reduce(parts))

    def _function(self, wanted: Assignment) -> Function:
        bound = calls_bound(self._called(wanted))
        function: Function = reached(self._module, wanted.function, bound=bound)
        return function

    def _called(self, wanted: Assignment) -> Convention:
        """Return a known convention, or the person's own, named when this process began."""
        own = self._adapted if wanted.convention == ADAPTED else None
        return own or self._conventions(wanted.convention)

    def _run(self, wanted: Assignment, function: Function) -> Reply:
        answer, part = self._local(wanted, function)
        gradients = self._sessions[wanted.engine].reduce([part])
        return PendingReduction(self._rank, [answer], gradients).answers()[0]

    def _local(
        self,
        wanted: Assignment,
        function: Function,
        shown: RecordedArguments | None = None,
        cell: GridCell | None = None,
    ) -> tuple[Answer, Any]:
        """All that comes before the engine's last reduction, and the session's part of it."""
        TRACER.own(begins=True)
        make_room(wanted.case.step.num_response_tokens)
        layout = wanted.case.layout
        cell = self._grid.cell(layout) if cell is None else cell
        megatron_mpu.place(
            cell.dp_rank, layout.dp_size, cell.cp_rank, layout.cp_size, cell.dp_group, cell.cp_group
        )
        TRACER.own(begins=False)
        site = self._site(wanted, cell)
        watch, module = ArgumentWatch(), self._module
        cold, self._cold = self._cold, False
        began = time.process_time() if cold else 0.0
        spy = watch if wanted.watch else shown
        if spy is not None:
            function, module = spy.function(function), spy.module(module)
        call = blame.bound(self._called(wanted), function, module, site)
        how = {"gain": wanted.gain, "scaler": wanted.scaler}
        spec = self._specs[wanted.engine]
        step = CandidateStep(site, call, spec, wanted.scale, wanted.under, **how)
        subject = (wanted.function, wanted.mode, wanted.engine, wanted.note, wanted.noted)
        noting = self._covering.noting(wanted.case, subject, usual=wanted.usual)
        with ARRIVAL.set(wanted.arrival), noting:
            part = self._sessions[wanted.engine].accumulate(step)
        return Answer(
            losses=tuple(step.losses),
            counts=tuple(step.counts),
            logs=tuple(step.logs) if any(log is not None for log in step.logs) else (),
            changed=tuple(watch.changes()),
            clips=tuple(step.clips[:_MOST_CLIPS]),
            first_seconds=time.process_time() - began if cold else 0.0,
            call_seconds=step.call_seconds,
            peak_bytes=peak(wanted.case.step.num_response_tokens),
            compiles=self._compiling.used,
            lines=self._covering.lines,
            outcomes=self._covering.outcomes,
        ), part

    def _site(self, wanted: Assignment, cell: GridCell) -> Site:
        return Site(
            wanted.case,
            wanted.mode,
            wanted.divisor,
            self._specs[wanted.engine].takes_counts,
            cell.dp_rank,
            cell.cp_rank,
            cell.dp_group,
            cell.cp_group,
            self._device,
            wanted.counts_rejected,
            wanted.terms,
            wanted.term,
            wanted.elsewhere,
            wanted.generations,
            self._grid.experts(wanted.case.layout) if wanted.experts else None,
            bool(wanted.virtual),
        )
