"""Whether the cause that is named first is the known one, over rows of the golden table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from tests.corpus.families import FAMILIES
from tests.corpus.table import UNNAMED, WRONG
from tests.golden.rows import Row

Rows = Mapping[str, Row]
OUTCOMES = ("right", "code only", "wrong cause", "nothing found")
KINDS = ("mutant", "wrong")


def known() -> dict[str, frozenset[str]]:
    """Bugs and codes that may be told of a wrong reducer, by its row's name without the seed."""
    mutants = {
        f"mutant {family.__name__.removeprefix('tests.')}:{entry.function}": frozenset(
            (entry.bug, *entry.codes)
        )
        for family in FAMILIES
        for entry in family.MUTANTS
    }
    blind = {f"wrong {e.target.removeprefix('tests.')}": e.causes | e.also for e in WRONG}
    return mutants | blind


def outcome(row: Row, causes: frozenset[str]) -> str:
    """Of the first finding that fails: the known bug, only its code, or something else."""
    first = next((f for f in row["findings"] if f["fails"]), None)
    if first is None:
        return OUTCOMES[3]
    unnamed = first["bug"] in UNNAMED
    if first["bug"] in causes or (unnamed and first["code"] in causes and first["cause"]):
        return OUTCOMES[0]
    return OUTCOMES[1] if unnamed and first["code"] in causes else OUTCOMES[2]


def located(rows: Rows) -> str:
    """How often a line that the first places name is the mistaken one, of wrong reducers written
    blind that end without a named bug."""
    counts: Counter[str] = Counter()
    for reducer in WRONG:
        row = rows.get(f"wrong {reducer.target.removeprefix('tests.')} 0", {"findings": []})
        found = [f for f in row["findings"] if f["fails"]]
        if not found or found[0]["bug"] not in UNNAMED:
            continue
        places = next((f["where"] for f in found if f.get("where")), [])
        lines = [reducer.source[line - 1] in reducer.mistake for _, line in places]
        counts.update(("all", *["place"] * bool(lines)))
        counts.update(f"first {n}" for n in (1, 3) if any(lines[:n]))
    return (
        f"Of {counts['all']} without a named bug, {counts['place']} name a place: the first is a "
        f"mistaken line of {counts['first 1']}, one of the first three of {counts['first 3']}."
    )


def page(rows: Rows, before: Rows | None) -> str:
    """A Markdown table of the figures, of the rows that both have where there are two, and the
    rows whose cause is not the known one."""
    causes = known()

    def judged(some: Rows) -> dict[str, tuple[str, Row]]:
        return {
            name: (outcome(row, causes[plain]), row)
            for name, row in some.items()
            if (plain := name.rpartition(" ")[0]) in causes and (before is None or name in before)
        }

    columns = {"": judged(rows)}
    if before is not None:
        columns = {", before": judged(before), ", after": columns[""]}
    return "\n".join([*_lines(columns), "", located(rows)])


def _lines(columns: Mapping[str, Mapping[str, tuple[str, Row]]]) -> Iterator[str]:
    heads = ("", "rows", *OUTCOMES, "wrong-cause rate", "several causes", "refuted by its step")
    yield f"| {' | '.join((*heads, 'share a signature'))} |"
    yield "|---" * (len(heads) + 1) + "|"
    for kind in KINDS:
        for when, judged in columns.items():
            mine = [each for name, each in judged.items() if name.startswith(kind)]
            yield f"| {kind}{when} | {' | '.join(_figures(mine))} |"
    *_, last = columns.values()
    yield ""
    for name, (how, row) in last.items():
        if how in OUTCOMES[2:]:
            first = next((f for f in row["findings"] if f["fails"]), {"code": "-", "bug": ""})
            yield f"- `{name}`: {how}, {first['code']} {first['bug']}".rstrip()


def _figures(mine: list[tuple[str, Row]]) -> list[str]:
    counts = Counter(how for how, _ in mine)
    shared = Counter(
        signature
        for _, row in mine
        for signature in {f["signature"] for f in row["findings"] if f["bug"] in UNNAMED}
    )
    return [
        str(len(mine)),
        *(str(counts[each]) for each in OUTCOMES),
        f"{100 * counts['wrong cause'] / max(len(mine), 1):.1f} %",
        str(sum(row["causes"] > 1 for _, row in mine)),
        str(sum(f["refuted"] for _, row in mine for f in row["findings"])),
        str(sum(n for n in shared.values() if n > 1)),
    ]
