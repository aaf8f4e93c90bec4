"""Logs as data, and misuses of every convention: each contradicts a good call."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from aggverify.conventions import CONVENTIONS, convention
from aggverify.trainer.contract import ContractBreach, logged, refusals


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
    how = convention(name)
    names = how.parameters or getattr(how, "recognised_by", ())
    good = dict(zip(names, GOOD[name], strict=True))
    for misuse in how.misuses:
        arguments = dict(good)
        misuse.spoil(arguments)
        changed = [
            name
            for name, a in arguments.items()
            if a is not good[name]
            and not (isinstance(a, torch.Tensor) and torch.equal(a, good[name]))
        ]
        assert len(changed) == 1, misuse
        seen.append((changed[0], repr(arguments[changed[0]])))
    assert len(set(seen)) == len(seen)


def test_misuses_have_names_of_their_own_and_known_modes() -> None:
    for how in CONVENTIONS.values():
        assert len({m.name for m in how.misuses}) == len(how.misuses)


def refused(candidate: Any, *args: Any, **kwargs: Any) -> dict[str, str | None]:
    """What becomes of the misuses of SkyRL's call, made so."""
    how = convention("skyrl")
    return dict(refusals(lambda f: f(*args, **kwargs), candidate, how, "token_mean"))


def strict(loss: Any, mask: Any, mode: Any = None, **more: Any) -> None:
    if more.get("loss_reduction", mode) != "token_mean":
        raise ValueError(f"no mode {more.get('loss_reduction', mode)!r}")


NO_MODE = {
    "unknown-mode": "ValueError: no mode 'token-avg'",
    "no-mode": "ValueError: no mode None",
    "short-mask": None,
}


def test_refusals_tell_accepted_from_refused() -> None:
    assert refused(strict, *GOOD["skyrl"][:3]) == NO_MODE


def test_a_misuse_finds_its_argument_by_name() -> None:
    loss, mask, mode, *_ = GOOD["skyrl"]
    assert refused(strict, loss, mask, loss_reduction=mode) == NO_MODE


def test_what_a_returned_function_raises_is_a_refusal() -> None:
    def factory(*args: Any) -> Any:
        return lambda: strict(*args)

    how = convention("skyrl")
    run = lambda f: f(*GOOD["skyrl"][:3])()  # noqa: E731
    assert dict(refusals(run, factory, how, "token_mean")) == NO_MODE


@pytest.mark.parametrize("candidate", [lambda *args: None, max, lambda loss, mask, mode: None])
def test_what_does_not_come_out_of_its_own_code_is_none(candidate: Any) -> None:
    """A result that the trainer cannot use, a function that cannot be called so at all."""

    def run(function: Any) -> None:
        function(*GOOD["skyrl"][:4])
        raise ContractBreach("the reducer must return a tensor")

    found = refusals(run, candidate, convention("skyrl"), "token_mean")
    assert dict(found) == dict.fromkeys(NO_MODE)
