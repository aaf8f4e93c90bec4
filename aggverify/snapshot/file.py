"""A snapshot as text: a header that names its subject, then one line an entry, sorted.

An entry leaves out what another number implies: weights equal to those of the same step on one rank
in the same dtype, and losses equal to the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from urllib.parse import unquote

from aggverify.errors import InputError
from aggverify.execution.claim import Claim
from aggverify.files import contents, os_error_text, write_inside
from aggverify.generation.corpus import VERSION
from aggverify.snapshot.pinned import EntryKey, Pinned, PinnedEntry, broken

SCHEMA = 3
MAX_BYTES = 1 << 22
NO_MODE = "no-mode"
"""The mode's name where a reducer implements none that is known."""
ALONE = "dp1.cp1.mb1"
"""The layout's name on one rank in one micro-batch."""
_ORDER = ("value", "losses", "weights")
_NOT_WRITTEN = frozenset({"schema", "target", "function", "oracle", "against", "seed", "budget"})
_DEFAULT_CLAIM = Claim("", "", "", "").to_json()
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class NumericEnvironment:
    """What the bits of a sum may depend on apart from the reducer."""

    torch: str
    processor: str
    """The vector instructions that torch uses."""
    threads: str

    def differences(self, other: NumericEnvironment) -> Iterator[str]:
        """Yield what is another one, as in "torch 2.6.0 instead of 2.5.1"."""
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if mine != theirs:
                yield f"{f.name} {mine} instead of {theirs}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Recorded, or as it is now."""

    target: str
    """A path from the project's folder, or a module; and the function."""
    environment: NumericEnvironment
    claims: Mapping[str, Claim]
    """By mode. Target and function are the snapshot's."""
    entries: Mapping[EntryKey, PinnedEntry]

    def by_mode(self) -> dict[str, dict[EntryKey, PinnedEntry]]:
        """Return the entries of each mode that is claimed, or has any."""
        found: dict[str, dict[EntryKey, PinnedEntry]] = {mode: {} for mode in sorted(self.claims)}
        for key, entry in sorted(self.entries.items()):
            found.setdefault(key.mode, {})[key] = entry
        return found


def render(snapshot: Snapshot) -> str:
    """Return the text of the file."""
    header = {
        "aggverify-snapshot": SCHEMA,
        "corpus": VERSION,
        **{f.name: getattr(snapshot.environment, f.name) for f in fields(NumericEnvironment)},
        "target": snapshot.target,
    }
    lines = [f"# {name} {_SPACE.sub(' ', str(value))}" for name, value in header.items()]
    claims = sorted(snapshot.claims.items())
    lines += [
        f"# claim {mode} {json.dumps(_not_default(claim), sort_keys=True)}"
        for mode, claim in claims
    ]
    entries = snapshot.entries
    lines += [f"{key} {_abridged(key, entries)}" for key in sorted(entries)]
    return "\n".join(lines) + "\n"


def _abridged(key: EntryKey, entries: Mapping[EntryKey, PinnedEntry]) -> PinnedEntry:
    """Return the entry without the values that others imply."""
    values = dict(entries[key].values)
    for name, usual in _defaults(key, values, entries):
        if str(values.get(name)) == str(usual):
            del values[name]
    return replace(entries[key], values=values)


def _completed(key: EntryKey, entries: Mapping[EntryKey, PinnedEntry]) -> PinnedEntry:
    """Return the entry with the values it leaves out, in the order that all entries have."""
    values = dict(entries[key].values)
    usual = {n: pinned for n, pinned in _defaults(key, values, entries) if n not in values}
    found = {n: (values | usual)[n] for n in _ORDER if n in values or n in usual}
    return replace(entries[key], values=found | values)


def _defaults(
    key: EntryKey, values: Mapping[str, Pinned], entries: Mapping[EntryKey, PinnedEntry]
) -> Iterator[tuple[str, Pinned]]:
    if "value" in values:
        yield "losses", values["value"]
    alone = replace(key, layout=ALONE)
    if key != alone and values and alone in entries and "weights" in entries[alone].values:
        yield "weights", entries[alone].values["weights"]


def _not_default(claim: Claim) -> dict[str, object]:
    """Return the claim's fields that are not at their defaults."""
    data = claim.to_json()
    return {k: v for k, v in data.items() if k not in _NOT_WRITTEN and v != _DEFAULT_CLAIM[k]}


def write(snapshot: Snapshot, directory: Path, name: str) -> Path:
    """Write ``DIRECTORY/NAME``; raises InputError where that cannot be done."""
    try:
        return write_inside(directory, name, render(snapshot))
    except OSError as error:
        raise InputError(f"cannot write the snapshot: {os_error_text(error)}") from None


def read(path: Path) -> Snapshot:
    """Return the snapshot of a file; raises InputError that names the line that is wrong."""
    try:
        raw = contents(path, MAX_BYTES)
        if len(raw) > MAX_BYTES:
            raise InputError(f"{path} is larger than a snapshot can be ({MAX_BYTES} bytes)")
        lines = raw.decode().split("\n")
    except FileNotFoundError:
        raise InputError(f"no such file: {path}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read a snapshot from {path}: {error}") from None
    return _parsed(str(path), lines)


def _parsed(name: str, lines: list[str]) -> Snapshot:
    header: dict[str, str] = {}
    claims: dict[str, str] = {}
    entries: dict[EntryKey, PinnedEntry] = {}
    for number, line in enumerate(lines, 1):
        where = f"{name}, line {number}"
        if line.startswith("# claim "):
            mode, _, text_of_claim = line.removeprefix("# claim ").partition(" ")
            claims[mode] = text_of_claim
        elif line.startswith("# "):
            word, _, value = line[2:].partition(" ")
            header[word] = value
        elif line:
            key, entry = _entry(where, line)
            if key in entries:
                raise InputError(f"{where}: a second entry for {key}; record it again")
            entries[key] = entry
    _check_versions(name, header)
    if missing := {"target", *(f.name for f in fields(NumericEnvironment))} - header.keys():
        raise InputError(f"{name}: its header lacks {', '.join(sorted(missing))}; record it again")
    target = header["target"]
    environment = NumericEnvironment(*(header[f.name] for f in fields(NumericEnvironment)))
    known = {
        mode: _claim(f"{name}, claim {mode}", text_of_claim, target)
        for mode, text_of_claim in claims.items()
    }
    whole = {key: _completed(key, entries) for key in entries}
    return Snapshot(target, environment, known, whole)


def _check_versions(name: str, header: Mapping[str, str]) -> None:
    for word, mine in (("aggverify-snapshot", SCHEMA), ("corpus", VERSION)):
        if word not in header:
            raise InputError(f"{name} is no snapshot: a line '# {word} {mine}' is missing")
        if header[word] != str(mine):
            raise InputError(
                f"{name} was recorded with {word} {header[word]!r:.40}, this is {word} {mine}: "
                f"check with the release that recorded it, then record it again with this one"
            )


def _entry(where: str, line: str) -> tuple[EntryKey, PinnedEntry]:
    words = line.split(" ")
    try:
        key = EntryKey(*words[:4])
        pairs = [(unquote(n), value) for n, _, value in (w.partition("=") for w in words[4:])]
        if pairs and pairs[0][0] == "fault":
            return key, PinnedEntry(fault=unquote(pairs[0][1]))
        values = {n: Pinned.read(value) for n, value in pairs}
    except (TypeError, ValueError, OverflowError):
        raise broken(where, line) from None
    if not values:
        raise broken(where, line)
    return key, PinnedEntry(values)


def _claim(where: str, text: str, target: str) -> Claim:
    path, _, function = target.rpartition(":")
    try:
        data = json.loads(text)
        if not isinstance(data, dict):
            raise ValueError("not an object")
        return Claim.from_json({**_DEFAULT_CLAIM, **data, "target": path, "function": function})
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where} cannot be read: {error}") from None
