"""What a rank reports of one assignment, apart from the gradient."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, structs

from aggverify import codec
from aggverify.codec import Double, Part
from aggverify.errors import InputError
from aggverify.trainer.argument_text import Argument

Numbers = Annotated[tuple[Double, ...], Meta(min_length=1, max_length=2)]
Log = tuple[tuple[str, Numbers], ...] | str | None
"""A micro-batch's log: keys in order with one number or two, or the text of its fault."""
Seconds = Annotated[float, Meta(ge=0, le=10**9)]


class Answer(Part, frozen=True):
    """One rank's account of a case it has run."""

    losses: tuple[Double, ...] = ()
    """What the candidate returned, per micro-batch."""
    counts: tuple[int, ...] = ()
    """Token counts per micro-batch: the reducer's own, or the trainer's."""
    logs: tuple[Log, ...] = ()
    """Per micro-batch, where the candidate returned any."""
    checksum: int = 0
    """CRC-32 of the reduced gradient, which all ranks must share."""
    changed: tuple[str, ...] = ()
    """Arguments that a watched candidate altered."""
    clips: tuple[tuple[Double, Double], ...] = ()
    """The largest norm, and the kind of norm, of every call of torch's clip_grad_norm_."""
    refusals: tuple[tuple[str, str | None], ...] = ()
    """Misuses by name, with what the candidate refused each; None for one it accepted."""
    given: tuple[Argument, ...] = ()
    """What the candidate was called with, where that was asked."""
    first_seconds: Seconds = 0.0
    """Processor time, where it was the rank's first case."""
    call_seconds: Seconds = 0.0
    """By the clock, of one call of the candidate; 0.0 where it is next to nothing."""

    peak_bytes: Annotated[int, Meta(ge=0, le=codec.LARGEST)] = 0
    """What the rank has held at most, after a large step; 0 after others."""

    compiles: bool = False
    """Whether the candidate has called something that it gave to torch.compile."""

    lines: tuple[int, ...] = ()
    """Lines of the candidate's file that ran."""

    outcomes: tuple[int, ...] = ()
    """Of its conditions, as ``trainer.conditions`` numbers them."""

    communicates: bool = False
    """Whether a virtual rank issued a collective, which has come to nothing."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, its doubles in their exact hexadecimal form; what is empty is left out."""
        data = {name: value for name, value in structs.asdict(self).items() if value}
        data["losses"] = list(map(float.hex, self.losses))
        if self.logs:
            data["logs"] = list(map(_written, self.logs))
        if self.clips:
            data["clips"] = [list(map(float.hex, clip)) for clip in self.clips]
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Answer:
        """Rebuild an answer from :meth:`to_json`'s data; raises InputError on anything else."""
        if "losses" not in data:
            raise InputError("the answer lacks losses")
        return codec.read(Answer, data, "the answer")


def _written(log: Log) -> Any:
    if log is None or isinstance(log, str):
        return log
    return [(key, list(map(float.hex, numbers))) for key, numbers in log]
