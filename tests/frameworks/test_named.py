"""Bugs of frameworks by their name, and a refusal that is on purpose, through whole commands."""

from __future__ import annotations

import pytest

from tests.conftest import Cli

pytestmark = pytest.mark.thorough
MODULE = "tests.frameworks.named"


@pytest.mark.parametrize(
    ("name", "options", "code", "text"),
    [
        (
            "prompts_by_rollouts",
            ("--engine", "megatron-sample", "--mode", "prompt_mean", "--group-size", "8"),
            1,
            "times n_samples_per_prompt seen in slime #2090, 6f708931c",
        ),
        (
            "empty_bin",
            ("--engine", "megatron-token-raw", "--mode", "token_mean"),
            1,
            "you compute an empty micro-batch counts as one token",
        ),
        (
            "refuses_empty_steps",
            ("--engine", "sum", "--mode", "token_mean"),
            1,
            "AGV401 Raises an exception",
        ),
        (
            "refuses_empty_steps",
            ("--engine", "sum", "--mode", "token_mean", "--without", "empty-steps"),
            0,
            "PASS",
        ),
    ],
)
def test_what_is_told(cli: Cli, name: str, options: tuple[str, ...], code: int, text: str) -> None:
    how = ("--convention", "native", "--profile", "quick", "--world", "2")
    ran = cli("check", f"{MODULE}:{name}", *how, *options)
    assert ran.code == code, ran
    assert text in " ".join(ran.out.split())
