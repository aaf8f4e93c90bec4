"""Replies of ranks as answers: other people's code runs there, so that anything may be in them."""

from __future__ import annotations

from collections.abc import Sequence

from aggverify.execution.run_spec import RunSpec
from aggverify.trainer.answer import Answer
from aggverify.world import Fault, Reply

_FLOAT64 = 8
MOST_RECORDED = 1 << 26
"""Bytes of a rank's calls, as data."""
_MICRO_BATCH = 1 << 14
"""Bytes for the loss, the count and the log of a micro-batch."""


def most_bytes(wanted: RunSpec) -> int:
    """Return how large a rank's reply may be, in addition to what every reply may have."""
    layout, tokens = wanted.case.layout, wanted.case.step.num_response_tokens
    ranks = max(len(wanted.virtual), 1)
    if wanted.record:
        return MOST_RECORDED
    return _FLOAT64 * tokens + _MICRO_BATCH * layout.num_microbatches * ranks


def answers(wanted: RunSpec, replies: Sequence[Reply]) -> tuple[Answer, ...] | Fault:
    """Return every rank's answer, or a fault of the first rank whose reply cannot be one."""
    found = []
    for rank, reply in enumerate(replies):
        try:
            answer = Answer.from_json(reply.data)
            _check(wanted, answer, reply.blob, first=rank == 0)
        except ValueError as error:
            text = f"rank {rank} sent what is no answer: {error!s:.200}"
            return Fault("died", rank, text, len(replies))
        found.append(answer)
    return tuple(found)


def _check(wanted: RunSpec, answer: Answer, blob: bytes, *, first: bool) -> None:
    """Raise ValueError unless it has as many numbers as the run spec's layout and step ask for."""
    if wanted.misuse or wanted.show or wanted.record:
        return
    expected = wanted.case.layout.num_microbatches * max(len(wanted.virtual), 1)
    for what, values in (("losses", answer.losses), ("counts", answer.counts)):
        if len(values) != expected:
            raise ValueError(f"{len(values)} {what} of {expected} micro-batches")
    if len(answer.logs) not in (0, expected):
        raise ValueError(f"{len(answer.logs)} logs of {expected} micro-batches")
    size = _FLOAT64 * wanted.case.step.num_response_tokens if first else 0
    if len(blob) != size:
        raise ValueError(f"a gradient of {len(blob)} bytes, and not {size}")
