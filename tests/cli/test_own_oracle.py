"""A mode of the person's own: judged by it, replayed with it, refused when it is none."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from aggverify.execution.deadline import OutOfTime
from aggverify.execution.oracle_process import interruptible, loaded_oracle
from aggverify.oracles import OracleError, Sample, Step
from tests.conftest import EXAMPLES, Cli

OWN = EXAMPLES / "length_weighted.py"
FIXED = EXAMPLES / "native" / "accumulated_mean" / "token_mean.py"


@pytest.mark.exhaustive
def test_a_persons_own_oracle_judges_and_is_named_when_replayed(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "r.py").write_text(
        "import torch\nfrom math import isqrt\n\n\ndef root(tokens):\n"
        "    return isqrt(tokens * 10**12) / 10**6\n\n\ndef reduce(losses, batch):\n"
        "    kept = torch.where(torch.cat(batch.local_masks).bool(), losses, 0.0)\n"
        "    pieces = kept.split([len(mask) for mask in batch.local_masks])\n"
        "    tokens = [int(mask.sum()) for mask in batch.loss_masks]\n"
        "    means = (root(n) * p.sum() / max(n, 1) for p, n in zip(pieces, tokens))\n"
        "    return sum(means) / max(sum(map(root, tokens)), 1e-300)\n"
    )
    options = ["--oracle", OWN, "--profile", "quick", "--world", "1"]
    ran = cli("check", "r.py", *options)
    assert "AGV202" in ran.out, ran  # its total is the micro-batch's
    assert "AGV101" not in ran.out
    found = re.search(r"reproduce +aggverify (replay .*)", ran.out)
    assert found is not None
    command = shlex.split(found[1])
    again = cli(*command)
    assert again.code == 1, again
    assert "FAILED" in again.out
    unsaid = cli(*command[:2])
    assert unsaid.code == 2
    assert f"say --oracle FILE (it was '{OWN}')" in unsaid.err
    other = cli("check", EXAMPLES / "native" / "sum" / "token_mean.py", *options)
    assert other.code == 1, other
    assert "AGV101" in other.out


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (None, "no such oracle file"),
        ("def weights(step):\n    return [1]\n", "one weight per response token"),
        ("import random\ndef weights(step):\n"
         "    return [random.random() * b for s in step.samples for b in s.loss_mask]\n",
         "is not deterministic"),
        ("def weights(step):\n    return [1] * step.num_response_tokens\n", "tokens weigh 0"),
        ("def scalar(step, losses):\n    return sum(losses) ** 2\n", "not linear"),
        ("def scalar(step, losses):\n    return 1\n", "all-zero losses must be 0"),
        ("def weights(step):\n    return ['x'] * step.num_response_tokens\n", "finite numbers"),
        ("x = 1\n", "defines neither"),
        ("1 / 0\n", "ZeroDivisionError"),
    ],
    ids=["missing", "shape", "random", "masked", "nonlinear", "offset", "type", "empty", "raises"],
)  # fmt: skip
def test_a_wrong_oracle_gets_a_clear_error(
    cli: Cli, tmp_path: Path, source: str | None, message: str
) -> None:
    if source is not None:
        (tmp_path / "mine.py").write_text(source)
    ran = cli("check", FIXED, "--oracle", "mine.py", "--profile", "quick")
    assert ran.code == 2, ran
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_an_oracle_that_ends_its_process_is_an_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("import os\ndef weights(step):\n    os._exit(0)\n")
    ran = cli("check", FIXED, "--oracle", "own.py", "--profile", "quick", "--world", "1")
    assert ran.code == 2, ran
    assert "own.py ended its process (exit status 0) instead of giving weights" in ran.err


def test_an_oracle_that_hangs_is_ended_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def weights(step):\n    while True:\n        pass\n")
    oracle = loaded_oracle(str(tmp_path / "own.py"))
    looks = iter(range(2))

    def turn() -> None:
        if next(looks, None) is None:
            raise OutOfTime

    with interruptible(turn), pytest.raises(OutOfTime):
        oracle.weights(Step((Sample(1, (1,), 0, 0),)))
    with pytest.raises(OracleError, match=r"ended its process \(signal 9\)"):
        oracle.weights(Step((Sample(1, (1,), 0, 0),)))
