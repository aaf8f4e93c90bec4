"""A committed list of known findings: read, held to what their cases show now, and written."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from aggverify import codec
from aggverify.codec import Case, Part
from aggverify.codes.identity import Identity
from aggverify.codes.state import Again, Standing
from aggverify.errors import InputError
from aggverify.files import put, read_json
from aggverify.model import Accepted, Document, Replay, Waiver
from aggverify.run.again import KnownFinding, replay
from aggverify.run.outcome.store import StoredCase
from aggverify.run.planning.waiver import accepting

SCHEMA: Literal[1] = 1
MAX_BYTES = 1 << 24
NO_REASON = "no reason given yet"
_STANDING: Mapping[Again, Standing] = {
    Again.PASSES: Standing.FIXED,
    Again.REFUSED: Standing.REFUSED,
    Again.NOT_RUN: Standing.NOT_RUN,
}


class Entry(Part, frozen=True):
    """One finding that is known: what it is, why it is accepted, and the case that shows it."""

    id: str
    identity: Identity
    reason: str
    owner: str
    expires: str | None
    """The last day on which it is accepted, as in ``2026-12-31``."""
    case: Case

    def __post_init__(self) -> None:
        if not self.reason.strip():
            raise InputError("a known finding needs a reason")
        if self.expires is not None:
            try:
                date.fromisoformat(self.expires)
            except ValueError:
                raise InputError(
                    f"expires must be a day, as in 2026-12-31, got {self.expires!r:.80}"
                ) from None
        stored = StoredCase.from_json(self.case)
        if (stored.id, stored.code) != (self.id, self.identity.code):
            raise InputError(
                f"{self.identity.code}:{self.id} has the case of {stored.code}:{stored.id}"
            )

    @property
    def what(self) -> str:
        return f"{self.identity.code}:{self.id}"

    @property
    def known(self) -> KnownFinding:
        """The entry as a finding whose case can be run again."""
        return KnownFinding(self.identity, StoredCase.from_json(self.case))

    def is_over(self, today: date) -> bool:
        """Whether its last day has passed."""
        return self.expires is not None and date.fromisoformat(self.expires) < today

    def waiver(self, today: date) -> Waiver:
        """By which findings like it are accepted."""
        return accepting(
            self.what,
            self.reason,
            self.identity,
            self.owner or None,
            self.expires,
            expired=self.is_over(today),
        )


class Baseline(Part, frozen=True):
    """All of them, of any number of reducers."""

    schema: Literal[1]
    known: tuple[Entry, ...]


def load(path: Path, *, missing: bool = False) -> Baseline:
    """Return the baseline in the file; ``missing``: an empty one where there is no file.

    Raises InputError for any other file.
    """
    try:
        data = read_json(path, "a baseline", MAX_BYTES)
    except FileNotFoundError:
        if missing:
            return Baseline(SCHEMA, ())
        raise InputError(f"no such baseline: {path} (--baseline-write makes it)") from None
    return codec.read(Baseline, data, f"the baseline {path}")


def standing(
    baseline: Baseline,
    reruns: Iterable[Replay],
    today: date,
    found: Collection[str] = (),
) -> Iterator[Accepted]:
    """Yield how every entry stands whose case was run again; others are about other reducers.

    ``found``: ids of findings that this run's own search has made: they need no rerun.
    """
    done = {rerun.id: rerun for rerun in reruns}
    for entry in baseline.known:
        rerun = done.get(entry.id)
        if entry.id in found:
            rerun = replay(entry.known, Again.FAILS, entry.identity.code)
        if rerun is None:
            continue
        state = _STANDING.get(rerun.outcome)
        if state is None:
            as_accepted = Standing.EXPIRED if entry.is_over(today) else Standing.HOLDS
            state = as_accepted if rerun.code == entry.identity.code else Standing.ANOTHER
        words = rerun.code if state is Standing.ANOTHER else rerun.words
        yield Accepted(
            entry.what, entry.identity, entry.reason, entry.owner, entry.expires, state, words
        )


def settled(document: Document, accepted: Sequence[Accepted]) -> Document:
    """Return the document with these, and the exit code that follows.

    An expired entry fails the command even where the search has not found it again; one that is
    out of date leaves it without a judgement.
    """
    made = replace(document, baseline=tuple(accepted))
    if document.error or document.incomplete or document.exit == 1:
        return made
    if any(one.state is Standing.EXPIRED for one in accepted):
        return replace(made, exit=1)
    return replace(made, exit=2) if made.stale else made


def merged(baseline: Baseline, document: Document) -> Baseline:
    """Return the baseline with what the document finds, without what its replays show gone.

    Raises InputError for a document that is not complete.
    """
    if why := _why_incomplete(document):
        raise InputError(f"the baseline is not written: {why}")
    gone = {one.what for one in document.stale if one.state is not Standing.NOT_RUN}
    # An older version's entry has no formula: it takes that of the finding it is otherwise.
    with_formula = {
        (f.id, replace(f.identity, form=None)): f.identity
        for verdict in document.verdicts
        for f in verdict.findings
    }
    kept = [
        replace(e, identity=with_formula.get((e.id, e.identity), e.identity))
        for e in baseline.known
        if e.what not in gone
    ]
    known = {entry.identity for entry in kept}
    for finding in (f for verdict in document.verdicts for f in verdict.findings):
        if finding.fails and finding.identity not in known:
            known.add(finding.identity)
            kept.append(Entry(finding.id, finding.identity, NO_REASON, "", None, finding.case))
    kept.sort(key=lambda e: (e.identity.about, e.identity.code, e.id))
    return Baseline(SCHEMA, tuple(kept))


def _why_incomplete(document: Document) -> str | None:
    if document.error or document.incomplete:
        return f"the run is not complete: {document.error or document.incomplete}"
    for verdict in document.verdicts:
        if verdict.fails_at_once:
            return "the reducer does not get through the simplest step, so nothing else was run"
        if verdict.not_judged or not verdict.executed:
            return f"not everything was judged of {verdict.mode_name}"
        if verdict.engine_in_question:
            return "no option names the trainer's engine"
    return None if document.verdicts else "nothing was tested"


def write(baseline: Baseline, path: Path) -> None:
    """Write the file; raises InputError where that cannot be done."""
    with suppress(FileNotFoundError):
        read_json(path, "a baseline", MAX_BYTES)  # what is no JSON is not overwritten
    put(path, json.dumps(codec.plain(baseline), indent=1) + "\n")


def schema() -> str:
    """``schema/baseline.json``: the tests hold that file to this."""
    return codec.schema("aggverify baseline", Baseline)


if __name__ == "__main__":
    print(schema(), end="")
