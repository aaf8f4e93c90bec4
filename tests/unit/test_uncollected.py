"""What an import makes is not gone through by the collector once it is on again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from aggverify.world.interpreter import uncollected

OBJECTS = 5000


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_an_import_makes_is_never_looked_at() -> None:
    before = gc.get_freeze_count()
    with uncollected():
        assert not gc.isenabled()
        made = [[n] for n in range(OBJECTS)]
    assert gc.isenabled()
    assert gc.get_freeze_count() - before >= len(made)
    assert not any(each is made[0] for each in gc.get_objects(generation=0))


def test_a_collector_that_is_off_stays_off() -> None:
    """A trainer that collects when it likes has switched it off while it was imported."""
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_the_collector_is_on_again_after_an_import_that_fails() -> None:
    with pytest.raises(ImportError), uncollected():
        raise ImportError
    assert gc.isenabled()
