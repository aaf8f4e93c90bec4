"""All verdicts of one command: made, stored, read, compared, made harmless."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, TypeVar

from msgspec.structs import replace

from aggverify import codec
from aggverify.codec import Double, Integer, Part, Text
from aggverify.codes.identity import Identity
from aggverify.codes.state import Again, Incomplete, Standing
from aggverify.errors import InputError
from aggverify.escape import json_text
from aggverify.files import read_json
from aggverify.model.finding import FindingRecord
from aggverify.model.verdict import Verdict

SCHEMA: Literal[6] = 6
WITH_SCRIPTS = 5
"""An older schema that is still read: its findings had scripts, which are dropped."""
MAX_BYTES = 1 << 28
"""A stored document is smaller even with every mode of a large step, 100,000 weights each."""


class Environment(Part, frozen=True):
    """What verdicts depend on apart from the reducer."""

    python: str
    torch: str
    backend: str
    transport: str


class Replay(Part, frozen=True):
    """A finding of another document whose case was run again on this one's reducer."""

    id: str
    identity: Identity
    outcome: Again
    code: str | None
    """The code that its case shows now."""
    words: Text | None
    """Why it was refused or not run."""
    observed: tuple[Double, ...] | None = None
    """The weights that it has now, where they are wrong."""


class Accepted(Part, frozen=True):
    """A known finding of a baseline, and how it stands."""

    what: str
    identity: Identity
    reason: str
    owner: str
    expires: str | None
    state: Standing
    words: Text | None
    """Why it is refused or not run; the code that it shows instead."""


class Document(Part, frozen=True):
    """All verdicts of one command, or why there is none."""

    schema: Literal[6]
    aggverify: str
    environment: Environment
    exit: Integer
    error: Text | None
    incomplete: Incomplete | None
    """What ended the command before everything planned was judged."""
    verdicts: tuple[Verdict, ...]
    replays: tuple[Replay, ...]
    baseline: tuple[Accepted, ...]
    """Of the entries that are about this reducer."""

    @property
    def stale(self) -> list[Accepted]:
        """Entries of the baseline that have to go, or to be written anew."""
        return [entry for entry in self.baseline if entry.state.stale]

    @property
    def unmatched(self) -> list[str]:
        """What an option accepts although no verdict has a finding of it."""
        found: dict[str, int] = {}
        every = (waiver for verdict in self.verdicts for waiver in verdict.waivers)
        for waiver in (w for w in every if w.identity is None):
            found[waiver.what] = found.get(waiver.what, 0) + waiver.findings
        return [what for what, findings in found.items() if not findings]


def comparable(document: Document) -> Document:
    """Return the document without what the clock and the order of threads have a part in.

    The rest is the same in every run with the same plan on the same code.
    """
    verdicts = tuple(
        replace(
            verdict,
            call_milliseconds=None,
            findings=tuple(replace(f, fault=None, detail=None) for f in verdict.findings),
        )
        for verdict in document.verdicts
    )
    return replace(document, verdicts=verdicts)


D = TypeVar("D", Document, Verdict, FindingRecord)


def harmless(part: D) -> D:
    """Return the same with every text escaped and, where one is due, on one line."""
    return codec.sanitize(part)


def render(document: Document) -> str:
    """Return the document as JSON."""
    return json_text(codec.plain(document), indent=1) + "\n"


def from_json(data: object) -> Document:
    """Return the document that plain data is.

    Raises InputError that names what is wrong, and where.
    """
    given = data.get("schema") if isinstance(data, dict) else None
    if isinstance(data, dict) and type(given) is int and given == WITH_SCRIPTS:
        data = _without_scripts(data)
    return codec.read(Document, data, "the verdict document")


def _without_scripts(data: dict[str, Any]) -> dict[str, Any]:
    """Return a document of schema 5 as one of today's; what is malformed stays, to be refused."""

    def with_each(part: Any, key: str, change: Callable[[Any], Any]) -> Any:
        inner = part.get(key) if isinstance(part, dict) else None
        return {**part, key: [*map(change, inner)]} if isinstance(inner, list) else part

    def without_script(finding: Any) -> Any:
        if not isinstance(finding, dict):
            return finding
        return {k: v for k, v in finding.items() if k not in ("script", "no_script")}

    found = with_each(data, "verdicts", lambda v: with_each(v, "findings", without_script))
    return {**found, "schema": SCHEMA}


def load(path: Path | str) -> Document:
    """Return the document that ``--report json`` wrote; raises InputError for any other file."""
    try:
        return from_json(read_json(Path(path), "a verdict document", MAX_BYTES))
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None


def schema() -> str:
    """``schema/verdict.json``: the tests hold that file to this."""
    return codec.schema("aggverify verdict document", Document)
