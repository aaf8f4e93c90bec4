"""Plain technical English: no retired word, none of our phrases, no sentence over 30 words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.quality import words

PHRASES = re.compile(
    r"what becomes of|(?:is|are) looked at|\bof its own(?= (?:that|and|for|to|in)\b|[,.:;)]|$)"
)
LONGEST = 30
LINES = 120
"""Of README, which a person reads in five minutes."""


def test_no_retired_word_is_left_where_people_read() -> None:
    pytest.importorskip("codespell_lib", reason="pip install -e '.[docs]'")
    assert words.retired() == []


def test_no_phrase_of_ours_is_left_where_people_read() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for path, lines in words.seen()
        for line, text in lines
        for match in PHRASES.finditer(" ".join(text.split()))
    ]
    assert found == []


def sentences(path: Path) -> Iterator[str]:
    """Of its prose: list items, table cells and paragraphs each end one."""
    text = "\n".join(line for _, line in words.prose(path))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#:>]|\d+\.) )|(?<=\|)|^\||\n#+ ", text):
        for sentence in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())):
            yield sentence.strip("|-* ")


@pytest.mark.parametrize("path", words.MARKDOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_no_sentence_is_longer_than_thirty_words(path: Path) -> None:
    lengths = {s: len(re.findall(r"[^\W_][\w'’/-]*", s)) for s in sentences(path)}
    assert {s: n for s, n in lengths.items() if n > LONGEST} == {}


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= LINES
