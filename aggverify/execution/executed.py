"""One case as the ranks ran it, made of their replies: weights and a scalar for the checks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from aggverify.engines import Sizes
from aggverify.engines.emulated import EmulatedEngine
from aggverify.execution import decode_replies
from aggverify.execution.run_spec import RunSpec
from aggverify.execution.subject import Subject
from aggverify.steps.case import Case
from aggverify.trainer.answer import Answer, Log
from aggverify.trainer.argument_text import Argument
from aggverify.world import Fault, Outcome
from aggverify.world.collectives import Collective, read

Weights = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Execution:
    """One case as the ranks ran it.

    ``weights``: float64, one entry per response token, the gradient after the engine.
    ``value``: the reported step scalar, exact in the local losses; None when one is not finite.
    """

    case: Case
    weights: Weights | None = None
    value: Fraction | None = None
    local_losses: tuple[tuple[float, ...], ...] = ()
    failure: Fault | None = None
    """Why there is no result: what the ranks did instead."""
    counts: tuple[int, ...] = ()
    """Token counts per rank and micro-batch, flat: the reducer's own, or the trainer's."""
    logs: tuple[tuple[Log, ...], ...] = ()
    """Per rank and micro-batch, where the candidate returned any."""
    changed: tuple[str, ...] = ()
    """Arguments that a watched candidate altered."""
    clips: tuple[tuple[float, float], ...] = ()
    """The largest norm, and the kind of norm, of every call of torch's clip_grad_norm_ on the first
    rank, where the candidate is a whole training step."""
    refusals: tuple[tuple[str, str | None], ...] = ()
    """Misuses by name, with what the candidate refused each; None for one it accepted."""
    given: tuple[Argument, ...] = ()
    """What the candidate was called with on the first rank, where that was asked."""
    recorded: tuple[bytes, ...] = ()
    """Of each rank its calls, as ``trainer.recording`` writes them, where that was asked."""
    first_seconds: float = 0.0
    """Processor time of the slowest rank for which this was the first case; 0.0 for none."""
    altered: tuple[str, ...] = ()
    """Global state that the candidate left changed, and that was put right again."""
    compiles: bool = False
    """Whether the candidate has called something that it gave to torch.compile."""
    lines: frozenset[int] = frozenset()
    """Lines of the candidate's file that ran on any rank."""
    outcomes: frozenset[int] = frozenset()
    """Ways that its conditions went, as numbers: 2 n where the subject's n-th condition was false,
    2 n + 1 where it was true."""
    call_seconds: float = 0.0
    """By the clock, for one call of the candidate; 0.0 where it is next to nothing."""
    peak_bytes: int = 0
    """Memory of the rank that has held most, after a large step; 0 after others."""
    virtual: bool = False
    """Whether its ranks were played by one process, or each by its own process."""
    communicates: bool = False
    """Whether such a rank issued a collective: then there is no result."""
    notes: tuple[tuple[str, ...], ...] = ()
    """Of each rank, the collectives it issued, as it noted them; none where cases were run
    together."""

    @property
    def traces(self) -> tuple[tuple[Collective, ...], ...]:
        """Of each rank, the collectives it issued, in order; the first ones of very many."""
        if self.failure is not None:
            known = self.failure.traces
            return tuple(known.get(rank, ()) for rank in range(self.failure.size))
        return tuple(tuple(map(read, notes)) for notes in self.notes)

    def scalar(self, subject: Subject, losses: Sequence[float]) -> Fraction | None:
        """Return what the engine makes of one number per rank and micro-batch.

        None if not finite.
        """
        return _scalar(subject, self.case, losses, self.counts)


def executed(subject: Subject, wanted: RunSpec, outcome: Outcome) -> Execution:
    """Return what came of a run spec."""
    case = wanted.case
    if isinstance(outcome, Fault):
        return Execution(case, failure=outcome)
    replies = outcome.replies
    answers = decode_replies.answers(wanted, replies)
    if isinstance(answers, Fault):
        return Execution(case, failure=answers)
    if wanted.misuse:
        return Execution(case, refusals=answers[0].refusals)
    if wanted.show:
        return Execution(case, given=answers[0].given)
    if wanted.record:
        return Execution(case, recorded=tuple(reply.blob for reply in replies))
    if wanted.virtual:
        return _played(subject, wanted, answers[0], replies[0].blob)
    if len({answer.checksum for answer in answers}) > 1:
        message = "ranks hold different gradients after the reduction"
        issued = {rank: tuple(map(read, reply.notes)) for rank, reply in enumerate(replies)}
        fault = Fault("disagree", None, message, case.layout.world_size, traces=issued)
        return Execution(case, failure=fault)
    losses = tuple(answer.losses for answer in answers)
    counts = tuple(n for answer in answers for n in answer.counts)
    return Execution(
        case,
        _unscaled(replies[0].blob, wanted.scale),
        _scalar(subject, case, copies(losses, case, 0), counts),
        losses,
        counts=counts,
        logs=_logs(answers),
        changed=tuple(f"rank {n}: {text}" for n, a in enumerate(answers) for text in a.changed),
        clips=answers[0].clips,
        first_seconds=max(answer.first_seconds for answer in answers),
        altered=tuple(dict.fromkeys(name for reply in replies for name in reply.changes)),
        call_seconds=max(answer.call_seconds for answer in answers),
        peak_bytes=max(answer.peak_bytes for answer in answers),
        compiles=any(answer.compiles for answer in answers),
        lines=frozenset(n for answer in answers for n in answer.lines),
        outcomes=frozenset(n for answer in answers for n in answer.outcomes),
        notes=tuple(reply.notes for reply in replies),
    )


def _played(subject: Subject, wanted: RunSpec, answer: Answer, blob: bytes) -> Execution:
    """Return what the virtual ranks of one process did; reduced if they are the whole world."""
    k = wanted.case.layout.num_microbatches
    places = range(len(wanted.virtual))
    found = Execution(
        wanted.case,
        np.frombuffer(blob, dtype=np.float64),
        local_losses=tuple(answer.losses[n * k : (n + 1) * k] for n in places),
        counts=answer.counts,
        lines=frozenset(answer.lines),
        outcomes=frozenset(answer.outcomes),
        first_seconds=answer.first_seconds,
        virtual=True,
        communicates=answer.communicates,
    )
    whole = len(wanted.virtual) == wanted.case.layout.world_size
    return reduced(subject, found) if whole else found


def reduced(subject: Subject, ran: Execution) -> Execution:
    """Return it with the update and the scalar that the engine makes of all virtual ranks' sum."""
    if ran.communicates or ran.weights is None:
        return replace(ran, weights=None)
    assert isinstance(subject.engine, EmulatedEngine)
    return replace(
        ran,
        weights=subject.engine.finished(ran.weights, sum(ran.counts), Sizes.of(ran.case)),
        value=_scalar(subject, ran.case, copies(ran.local_losses, ran.case, 0), ran.counts),
    )


def _unscaled(blob: bytes, scale: float) -> Weights:
    weights: Weights = np.frombuffer(blob, dtype=np.float64)
    return weights if scale == 1.0 else weights / scale


def _scalar(
    subject: Subject, case: Case, losses: Sequence[float], counts: Sequence[int]
) -> Fraction | None:
    if not all(map(math.isfinite, losses)):
        return None
    engine = subject.engine
    adds_up = isinstance(engine, EmulatedEngine) and engine.adds_up
    exact = [exact_sum(losses)] if adds_up else [Fraction(x) for x in losses]
    return engine.value(exact, counts, Sizes.of(case))


def exact_sum(numbers: Sequence[float]) -> Fraction:
    """Of finite numbers: every denominator is a power of two, so that the largest is common."""
    ratios = [number.as_integer_ratio() for number in numbers]
    common = max([below for _, below in ratios], default=1)
    return Fraction(sum([above * (common // below) for above, below in ratios]), common)


def copies(local: Sequence[Sequence[float]], case: Case, copy: int) -> list[float]:
    """One number per rank and micro-batch, flat.

    In gathered layouts all context-parallel ranks hold copies of one value, which counts once:
    those of rank ``copy`` are taken.
    """
    layout = case.layout
    stride = layout.cp_size if layout.cp_kind == "gathered" else 1
    return [x for rank in local[copy % stride :: stride] for x in rank]


def _logs(answers: Sequence[Answer]) -> tuple[tuple[Log, ...], ...]:
    if not any(answer.logs for answer in answers):
        return ()
    return tuple(answer.logs or (None,) * len(answer.losses) for answer in answers)
