"""docs/systems.md says what the conventions say: the table of cells is made from them.

``python -m tests.quality.test_systems`` writes it anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from aggverify.conventions import CONVENTIONS, Convention, Offer
from aggverify.engines import formulas
from aggverify.oracles import LEGACY, MODES
from tests.conftest import ROOT

PATH = ROOT / "docs" / "systems.md"
BEGIN, END = "<!-- cells -->\n", "<!-- end of cells -->\n"
PROMISED = frozenset({"whole-groups"})
OFFER = Offer("f", ("prompt_boundaries",))
ORDER = (
    *("sample_mean", "prompt_mean", "token_mean", "constant", "sequence_sum", "token_sum"),
    LEGACY.name,
)


def engines(how: Convention, mode: str, claimed: frozenset[str]) -> list[str]:
    """Those under which the cell can be right, the default first."""
    usual = how.default_engine(mode)
    every = dict.fromkeys([*(e.name for e in formulas()), usual])
    right = [name for name in every if how.why_not(mode, name, claimed) is None]
    return sorted(right, key=lambda name: name != usual)


def cell(how: Convention, mode: str, notes: list[str]) -> str:
    why = getattr(how, "always_wrong", {}).get(mode, "")
    if mode in how.modes(OFFER) and not why and (right := engines(how, mode, frozenset())):
        return "any engine" if len(right) == len(formulas()) else ", ".join(f"`{e}`" for e in right)
    if mode not in how.modes(OFFER) and mode not in getattr(how, "never", {}):
        return "–"
    promised = engines(how, mode, PROMISED)
    told = f"with `--group-size`: `{promised[0]}`" if promised else "never"
    told = "never right" if why else told
    why = why or how.why_not(mode, how.default_engine(mode), frozenset()) or ""
    if why not in notes:
        notes.append(why)
    return f"{told} ({notes.index(why) + 1})"


def lines() -> Iterator[str]:
    notes: list[str] = []
    yield "| convention | " + " | ".join(f"`{mode}`" for mode in ORDER) + " |"
    yield "|---" * (len(ORDER) + 1) + "|"
    for how in CONVENTIONS.values():
        yield f"| `{how.name}` | " + " | ".join(cell(how, m, notes) for m in ORDER) + " |"
    yield ""
    yield from (f"{n}. {why}" for n, why in enumerate(notes, 1))


def made() -> str:
    before, rest = PATH.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + "\n".join(lines()) + "\n" + END + rest.split(END)[1]


def test_the_table_is_what_the_conventions_say() -> None:
    assert set(ORDER) == {*MODES, LEGACY.name}
    assert PATH.read_text(encoding="utf-8") == made()


def test_every_convention_has_its_command() -> None:
    text = PATH.read_text(encoding="utf-8").split(BEGIN)[0]
    named = set(re.findall(r"--convention ([\w-]+)", text))
    assert named == set(CONVENTIONS)


if __name__ == "__main__":
    PATH.write_text(made(), encoding="utf-8")


BARE = {
    *("native", "trainer", "trainer-engine", "validation", "log-reducer"),
    *("megatron-lm", "megatron-lm-two-output"),  # of pre-training: there is nothing around it
}


def test_every_verdict_says_what_stands_around_the_aggregation() -> None:
    silent = {
        how.name for how in CONVENTIONS.values() if "not exercised" not in "; ".join(how.notes)
    }
    assert silent == BARE
