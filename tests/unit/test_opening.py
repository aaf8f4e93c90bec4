"""What the parent's garbage collector has to look through while cases run."""

from __future__ import annotations

import pytest

from aggverify.errors import InputError
from aggverify.oracles import OracleError
from aggverify.run import opening


class Collector:
    """Stands for ``gc``, which the ranks of other tests may have frozen already."""

    def __init__(self) -> None:
        self.frozen = 375
        self.threshold: tuple[int, ...] = (700, 10, 10)

    def get_freeze_count(self) -> int:
        return self.frozen

    def get_threshold(self) -> tuple[int, ...]:
        return self.threshold

    def set_threshold(self, *threshold: int) -> None:
        self.threshold = threshold

    def freeze(self) -> None:
        self.frozen = 1000

    def unfreeze(self) -> None:
        self.frozen = 0


def test_what_was_there_is_frozen_for_as_long_as_cases_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "gc", gc := Collector())
    with pytest.raises(KeyboardInterrupt), opening.frozen():
        with opening.frozen():
            assert gc.frozen == 1000 and gc.threshold == (10_000, 10, 10)
        assert gc.frozen == 1000, "the inner one is not its own"
        raise KeyboardInterrupt
    assert gc.threshold == (700, 10, 10)
    assert not gc.frozen, "nothing of the person's own stays frozen"


def test_what_somebody_else_has_frozen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "gc", gc := Collector())
    gc.freeze()
    with opening.frozen():
        pass
    assert gc.frozen


def test_an_oracle_that_is_wrong_is_wrong_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "gc", gc := Collector())
    with pytest.raises(InputError, match=r"^no weight for token 3$"), opening.judging(lambda: None):
        assert gc.frozen == 1000
        raise OracleError("no weight for token 3")
