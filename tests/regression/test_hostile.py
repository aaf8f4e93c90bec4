"""Text from a candidate changes nothing but text, in every format of a comparison."""

from __future__ import annotations

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


def test_a_comment_fits_whatever_there_is_to_say() -> None:
    many = verdict("x" * 300, reports=25)
    text = rendered(compare(document(many), document(many, replays=())), "md")
    new = rendered(compare(document(verdict()), document(many)), "md")
    assert len(text.encode()) <= MAX_BYTES and len(new.encode()) <= MAX_BYTES
    assert "left out here for lack of room" in new
