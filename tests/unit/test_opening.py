"""What the parent's garbage collector has to look through while cases run."""

from __future__ import annotations

import gc

from aggverify.run.opening import _frozen


def test_what_was_there_is_frozen_for_as_long_as_cases_run() -> None:
    assert not gc.get_freeze_count()
    with _frozen():
        frozen = gc.get_freeze_count()
        with _frozen():
            assert frozen
        assert gc.get_freeze_count() == frozen, "the inner one is not its own"
    assert not gc.get_freeze_count()


def test_what_somebody_else_has_frozen_stays() -> None:
    gc.freeze()
    try:
        with _frozen():
            pass
        assert gc.get_freeze_count()
    finally:
        gc.unfreeze()
