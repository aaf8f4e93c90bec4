"""What is drawn depends on the seed alone, and a person's own tests draw as before."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers

from aggverify.generation.backend import BACKEND, SeededProvider, seeded
from aggverify.generation.space import Space
from aggverify.run.search.drawing import drawn

SPACE = Space(max_dp=4, max_cp=2, max_microbatches=3)


@pytest.mark.skipif(
    not hasattr(providers, "_get_local_constants"), reason="this Hypothesis collects no constants"
)
def test_the_same_whatever_a_process_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if modules of the person's own were full of these numbers."""
    before = drawn(SPACE, 300, seed=1)
    constants = providers.Constants(integers=set(range(40)))
    monkeypatch.setattr(providers, "_get_local_constants", lambda: constants)
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", type(providers.CONSTANTS_CACHE)(1024))
    assert drawn(SPACE, 300, seed=1) == before


def test_the_usual_backend_stays_what_it_is() -> None:
    assert settings().backend == "hypothesis"


def draws(strategy: st.SearchStrategy[int | bool], seed: int | str) -> Counter[int | bool]:
    found: Counter[int | bool] = Counter()

    @settings(max_examples=1000, database=None, deadline=None, backend=BACKEND)
    @given(strategy)
    def draw(value: int | bool) -> None:
        found[value] += 1

    with seeded(seed):
        draw()
    return found


@pytest.mark.parametrize("strategy", [st.integers(3, 9), st.booleans()], ids=repr)
def test_every_value_is_as_likely(strategy: st.SearchStrategy[int | bool]) -> None:
    found = draws(strategy, 0)
    each = found.total() / len(found)
    assert len(found) in (2, 7) and all(0.8 * each < n < 1.2 * each for n in found.values())
    assert found == draws(strategy, 0) and found != draws(strategy, "1/2")


def test_bounds_of_a_wide_range_are_likely_and_both_are_drawn() -> None:
    found = draws(st.integers(-512, 511), 0)
    assert min(found) == -512 and max(found) == 511 and len(found) > 500


def test_what_no_case_is_made_of_is_an_error() -> None:
    provider = SeededProvider(None)
    for draw in (provider.draw_float, provider.draw_string, provider.draw_integer):
        with pytest.raises(NotImplementedError, match=f"{BACKEND!r} draws bounded integers, not a"):
            draw()
