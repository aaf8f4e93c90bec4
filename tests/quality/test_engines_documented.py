"""docs/engines.md says what the engines say. ``python -m tests.quality.test_engines_documented``
writes it anew."""

from __future__ import annotations

from collections.abc import Iterator

from aggverify.engines import ENGINES
from tests.conftest import ROOT

PATH = ROOT / "docs" / "engines.md"
BEGIN, END = "<!-- engines -->\n", "<!-- end of engines -->\n"


def lines() -> Iterator[str]:
    yield "| engine | update, trainer and engine | what the reducer returns |"
    yield "|---|---|---|"
    for engine in ENGINES.values():
        if engine.deviates is None:
            yield f"| `{engine.name}` | {engine.title} | {engine.required} |"
    yield ""
    yield "## Those that deviate"
    yield ""
    yield "| engine | instead of | this trainer | seen | usual fix |"
    yield "|---|---|---|---|---|"
    for engine in ENGINES.values():
        if (how := engine.deviates) is not None:
            usual = " or ".join(f"`{name}`" for name in how.usual)
            yield f"| `{engine.name}` | {usual} | {how.instead} | {how.seen} | {how.fix} |"


def made() -> str:
    before, rest = PATH.read_text(encoding="utf-8").split(BEGIN)
    return before + BEGIN + "\n".join(lines()) + "\n" + END + rest.split(END)[1]


def test_the_tables_are_what_the_engines_say() -> None:
    assert PATH.read_text(encoding="utf-8") == made()


if __name__ == "__main__":
    PATH.write_text(made(), encoding="utf-8")
