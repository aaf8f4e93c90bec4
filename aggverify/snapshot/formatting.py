"""What moved, by mode and layout, and the smallest of it drawn: plain lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

from aggverify.escape import line
from aggverify.report.findings import drawn
from aggverify.report.formatting import counted, drawing, number, ratio, token_name
from aggverify.run.outcome.verdict import Exit
from aggverify.snapshot.comparing import Level, Moved
from aggverify.snapshot.pinned import Pinned, PinnedEntry, hexadecimal
from aggverify.snapshot.session import Compared
from aggverify.steps.layouts import dimensions

_WORDS = {
    Level.CHANGED: "changed",
    Level.MISSING: "missing from the record",
    Level.ORPHANED: "orphaned: not run any more",
    Level.BOUND: "moved, within their rounding bound",
    Level.ULPS: "moved by no more than {ulps} units in the last place",
    Level.IDENTICAL: "identical",
}
_PLACES = {
    frozenset[str](): "one rank",
    frozenset({"num_microbatches"}): "micro-batches",
    frozenset({"dp_size"}): "data parallel",
    frozenset({"cp_size"}): "context parallel",
}


def format_changes(name: str, found: Compared) -> Iterator[str]:
    """All lines on one snapshot."""
    elsewhere = found.elsewhere
    where = "as recorded" if not elsewhere else f"another than recorded ({', '.join(elsewhere)})"
    yield line(f"{name} · {found.target}")
    yield line(f"environment  {where}")
    for mode in found.snapshot.by_mode():
        mine = [moved for moved in found.entries if moved.key.mode == mode]
        yield from _mode(mode, mine, found.ulps)
    yield from map(line, _smallest(found))
    yield _headline(found)


def _mode(mode: str, entries: list[Moved], ulps: int) -> Iterator[str]:
    """One line a level: how many, and on which layouts."""
    if all(moved.level is Level.IDENTICAL for moved in entries):
        yield line(f"  {mode}: {counted(len(entries), 'case')}, byte-identical")
        return
    yield line(f"  {mode}: {counted(len(entries), 'case')}")
    total = Counter(_place(moved) for moved in entries)
    for level, words in _WORDS.items():
        at = Counter(_place(moved) for moved in entries if moved.level is level)
        if not at:
            continue
        places = ", ".join(f"{place} {n} of {total[place]}" for place, n in sorted(at.items()))
        yield f"    {sum(at.values()):4} {words.format(ulps=ulps)}  ({places})"


def _place(moved: Moved) -> str:
    if moved.case is None:
        return "not run"
    return _PLACES.get(dimensions(moved.case.layout), "several at once")


def _headline(found: Compared) -> str:
    moved = [m for m in found.entries if m.level is not Level.IDENTICAL]
    if not moved:
        return f"identical: {counted(len(found.entries), 'case')}, bit for bit"
    changed = found.at(Level.CHANGED, Level.MISSING, Level.ORPHANED)
    if changed:
        return f"CHANGED: {len(changed)} of {counted(len(found.entries), 'case')}"
    if found.fails:
        return (
            f"MOVED: {len(moved)} of {counted(len(found.entries), 'case')} are not the same bits, "
            f"in the environment they were recorded in"
        )
    return (
        f"warning: {len(moved)} of {counted(len(found.entries), 'case')} moved within rounding, "
        f"in another environment; recorded there, they would say whether the reducer did it"
    )


def code(found: Compared) -> Exit:
    """Return the exit code of one snapshot."""
    return Exit.FINDINGS if found.fails else Exit.CONFORMS


def _smallest(found: Compared) -> Iterator[str]:
    """Yield the smallest case of those that moved furthest."""
    worst = found.at(Level.CHANGED) or found.at(Level.BOUND) or found.at(Level.ULPS)
    run = [moved for moved in worst if moved.case is not None]
    if not run:
        missing = found.at(Level.MISSING, Level.ORPHANED)
        yield from (f"  {m.key}: {_WORDS[m.level]}" for m in missing[:3])
        return
    moved = min(run, key=lambda m: (m.case.size if m.case else (), m.key))
    assert moved.case is not None
    step = drawn(moved.case)
    yield f"- {moved.key}  [{_WORDS[moved.level].format(ulps=found.ulps)}]"
    for text in (*_difference(moved), *drawing(step)):
        yield f"    {text}"


def _difference(moved: Moved) -> Iterator[str]:
    """Yield what of the entry, as it was recorded and as it is."""
    before, now, case = moved.before, moved.now, moved.case
    assert before is not None and now is not None and case is not None
    if before.fault or now.fault or not moved.field:
        yield "what comes of the step"
        yield f"  recorded  {_outcome(before)}"
        yield f"  now       {_outcome(now)}"
        return
    old, new = before.values[moved.field], now.values[moved.field]
    what = {"weights": "weight", "value": "reported loss", "losses": "losses of single ranks"}
    name = what.get(moved.field, moved.field.replace("log:", "logged "))
    if moved.field == "weights":
        name += f" of {token_name(drawn(case), moved.place)}"
    if old.bare or new.bare:
        yield f"{name}: {old} recorded, {new} now"
        return
    if (pair := _pair(old, new, moved.place)) is None:
        yield f"{name}: {old.count} numbers recorded, {new.count} now"
        return
    was, is_now = pair
    yield name
    yield f"  recorded  {number(was)}    ({hexadecimal(was)})"
    factor = None if not was else ratio(Fraction(was), is_now)
    plain = factor is not None and factor.denominator < 10**6 and factor != 1
    times = f"    = recorded x {factor}" if plain else ""
    yield f"  now       {number(is_now)}    ({hexadecimal(is_now)}){times}"


def _pair(old: Pinned, new: Pinned, place: int) -> tuple[float, float] | None:
    if old.count != new.count:
        return None
    if old.numbers is not None and new.numbers is not None:
        return (old.numbers[place], new.numbers[place]) if new.numbers else None
    return old.largest, new.largest


def _outcome(entry: PinnedEntry) -> str:
    if entry.fault:
        return entry.fault
    return f"a result with {', '.join(entry.values)}"
