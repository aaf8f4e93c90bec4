"""Text from a candidate changes nothing but text, in every format of a comparison."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggverify.regression.compare import compare
from aggverify.regression.formats import rendered
from aggverify.regression.model import Kind
from aggverify.report.markdown import MAX_BYTES
from tests.regression.documents import document, pairs, verdict
from tests.unit.test_reports_hostile import HOSTILE, PIECES, SHAPES


@pytest.mark.parametrize("name", ["html", "md"])
@pytest.mark.parametrize("kind", Kind)
def test_hostile_text_leaves_the_shape_alone(kind: Kind, name: str) -> None:
    plain, hostile = (
        rendered(compare(*pairs(text)[kind](), names=(f"b{text}", "h")), name)
        for text in ("word", HOSTILE)
    )
    assert SHAPES[name](hostile) == SHAPES[name](plain)
    assert all(line.isprintable() for line in hostile.split("\n"))


PLAIN = SHAPES["md"](rendered(compare(*pairs("a")[Kind.NEW_FAILURE]()), "md"))


@settings(max_examples=10)
@given(st.lists(PIECES, min_size=4, max_size=20).map("".join))
def test_no_text_breaks_markdown(text: str) -> None:
    drawn = rendered(compare(*pairs(f"a{text}")[Kind.NEW_FAILURE]()), "md")
    assert SHAPES["md"](drawn) == PLAIN


@pytest.mark.parametrize("kind", Kind)
def test_no_line_of_text_is_a_command(kind: Kind) -> None:
    for line in rendered(compare(*pairs(HOSTILE)[kind]()), "text").split("\n"):
        assert line.isprintable() and not line.lstrip().startswith(("::", "##["))


@pytest.mark.parametrize("kind", Kind)
def test_data_for_programs_keeps_its_shape_and_has_no_odd_character(kind: Kind) -> None:
    plain, hostile = (
        [json.loads(rendered(compare(*pairs(text)[kind]()), name)) for name in FORMS]
        for text in ("word", HOSTILE)
    )
    assert shape(hostile) == shape(plain)
    assert all(text.isprintable() for text in texts(hostile[0])), "shown by GitLab as it is"


FORMS = ("codequality", "json")


def shape(data: Any) -> Any:
    """Everything but the values; a list by its entries' shapes."""
    if isinstance(data, dict):
        return {key: shape(value) for key, value in data.items() if key not in FOREIGN}
    return list(map(shape, data)) if isinstance(data, list) else type(data).__name__


FOREIGN = ("case", "fault", "replay")
"""Of a finding, what is kept as it is."""


def texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    for inner in (
        data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    ):
        yield from texts(inner)


def test_a_comment_fits_whatever_there_is_to_say() -> None:
    many = verdict("x" * 300, reports=25)
    text = rendered(compare(document(many), document(many, replays=())), "md")
    new = rendered(compare(document(verdict()), document(many)), "md")
    assert len(text.encode()) <= MAX_BYTES and len(new.encode()) <= MAX_BYTES
    assert "left out here for lack of room" in new
