"""What is drawn depends on the seed alone."""

from __future__ import annotations

import pytest
from hypothesis.internal.conjecture import providers

from aggverify.generation.space import Space
from aggverify.run.search.drawing import drawn

SPACE = Space(max_dp=4, max_cp=2, max_microbatches=3)

pytestmark = pytest.mark.skipif(
    not hasattr(providers, "_get_local_constants"), reason="this Hypothesis collects no constants"
)


def test_the_same_whatever_a_process_has_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if modules of the person's own were full of these numbers."""
    before = drawn(SPACE, 300, seed=1)
    constants = providers.Constants(integers=set(range(40)))
    monkeypatch.setattr(providers, "_get_local_constants", lambda: constants)
    monkeypatch.setattr(providers, "CONSTANTS_CACHE", type(providers.CONSTANTS_CACHE)(1024))
    assert drawn(SPACE, 300, seed=1) == before


def test_a_persons_own_tests_draw_as_before() -> None:
    before = providers._get_local_constants, providers.CONSTANTS_CACHE
    drawn(SPACE, 10, seed=1)
    assert (providers._get_local_constants, providers.CONSTANTS_CACHE) == before
