"""Logs as data, and misuses of every convention: each contradicts a good call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aggverify.conventions import CONVENTIONS, convention
from aggverify.trainer.contract import logged, refusals


@pytest.mark.parametrize(
    ("log", "data"),
    [
        (None, None),
        ({}, []),
        ({"loss": 1.5}, [["loss", [1.5]]]),
        ({"b": torch.tensor(2), "a": True}, [["b", [2.0]], ["a", [1.0]]]),
        ({"loss": torch.tensor([[0.5]])}, [["loss", [0.5]]]),
        ({"loss": torch.tensor([3.0, 4.0])}, [["loss", [3.0, 4.0]]]),
        ({"loss": (torch.tensor(3.0), 4)}, [["loss", [3.0, 4.0]]]),
    ],
)
def test_a_log_becomes_plain_data_in_its_order(log: Any, data: Any) -> None:
    found = logged(log)
    if data is not None:
        found = [[key, list(numbers)] for key, numbers in found]
    assert found == data


@pytest.mark.parametrize(
    ("log", "fault"),
    [
        ([("loss", 1.0)], "the log must be a mapping, got list"),
        ({1: 2.0}, "a key of the log must be text, got 1"),
        ({"x": "1.0"}, "log['x'] must be a scalar or a pair [sum, count], got str '1.0'"),
        ({"x": torch.ones(3)}, "log['x'] must be a scalar or a pair [sum, count], got a tensor of"),
        ({"x": [1.0, [2.0, 3.0]]}, "log['x'] must be a scalar or a pair [sum, count], got list"),
        ({"x": None}, "log['x'] must be a scalar or a pair [sum, count], got NoneType None"),
    ],
)
def test_a_malformed_log_is_told(log: Any, fault: str) -> None:
    assert str(logged(log)).startswith(fault)


GOOD: dict[str, list[Any]] = {
    "slime": [[5], [3], [torch.ones(3, dtype=torch.int32)], False],
    "skyrl": [torch.ones(2, 3), torch.ones(2, 3), "token_mean", 2, 16.0, [(0, 1), (1, 2)]],
    "skyrl-reduce-loss": [torch.ones(2, 3), torch.ones(2, 3), "token_mean", 16.0],
}


@pytest.mark.parametrize("name", GOOD)
def test_every_misuse_changes_the_call(name: str) -> None:
    seen = []
    for misuse in convention(name).misuses:
        arguments = list(GOOD[name])
        misuse.spoil(arguments)
        changed = [
            i
            for i, (a, b) in enumerate(zip(arguments, GOOD[name], strict=True))
            if a is not b and not (isinstance(a, torch.Tensor) and torch.equal(a, b))
        ]
        assert len(changed) == 1, misuse
        seen.append((changed[0], repr(arguments[changed[0]])))
    assert len(set(seen)) == len(seen)


def test_misuses_have_names_of_their_own_and_known_modes() -> None:
    for how in CONVENTIONS.values():
        assert len({m.name for m in how.misuses}) == len(how.misuses)
        assert how.misuses


def test_refusals_tell_accepted_from_refused() -> None:
    def strict(loss: Any, mask: Any, mode: str, length: float | None) -> None:
        if mode != "token_mean":
            raise ValueError(f"no mode {mode!r}")

    def run(candidate: Any) -> None:
        candidate(*GOOD["skyrl-reduce-loss"])

    found = refusals(run, strict, convention("skyrl-reduce-loss"), "token_mean")
    assert dict(found) == {
        "unknown-mode": "ValueError: no mode 'token-avg'",
        "no-mode": "ValueError: no mode None",
        "short-mask": None,
    }
