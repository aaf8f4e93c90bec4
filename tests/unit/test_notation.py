"""Steps as text: what is written short is the same step."""

from __future__ import annotations

import pytest

from aggverify.errors import InputError
from aggverify.steps.notation import format_step, parse_step


def test_a_run_of_a_mask_may_be_counted() -> None:
    assert parse_step("2/1{3}01{2} 1{2}") == parse_step("2/111011 1/11")
    assert format_step(parse_step("2/1{3}0")) == "2/1110"


@pytest.mark.parametrize("text", ["1/1{0}", "1/1{9999999}", "1/{3}", "1/1{}", "1/1{3", "1/"])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_step(text)
